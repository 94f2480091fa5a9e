"""Records as a DataFrame with a row per record, and mean ± sample standard deviation over seeds."""

import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from knnprompt_jax import errors
from knnprompt_jax.methods import noisy_channel
from knnprompt_jax.report import records as records_lib
from knnprompt_jax.report.known_methods import METHODS
from knnprompt_jax.settings import grids

Record = records_lib.Record
FULL, FEW_SHOT = grids.REGIMES
FILLS_CONTEXT = 0  # The value of axis m for a method whose demonstrations fill the context (M_T).
BEST_TEMPLATE = "{}, best template of each seed"
_COLUMNS = (*(field.name for field in dataclasses.fields(Record)), "m", "regime", "record")
_WITH_TEMPLATES = [method.name for method in noisy_channel.METHODS]
_LAST_DIGITS = ("batch", "mesh")  # Settings that change only a result's last digits.


@dataclasses.dataclass(frozen=True)
class Score:
    """A mean of `count` values in the unit of its table and, where known, their sample standard deviation (ddof = 1).

    A table prints `note` in brackets behind the numbers.
    """

    mean: float
    std: float | None = None
    count: int = 1
    note: str = ""

    @classmethod
    def of(cls, values: Iterable[float]) -> "Score":
        """Return the score of some values; a single value has no spread."""
        values = [float(value) for value in values]
        std = statistics.stdev(values) if len(values) > 1 else None
        return cls(statistics.fmean(values), std, len(values))

    def text(self, digits: int = 1) -> str:
        """Return mean ± standard deviation as tables show them."""
        formatted = f"{self.mean:.{digits}f}"
        if self.std is not None:
            formatted += f" ± {self.std:.{digits}f}"
        if self.note:
            formatted += f" ({self.note})"
        return formatted.replace("-", "−")


def frame(records: Sequence[Record]) -> pd.DataFrame:
    """Return a row per record: its fields, accuracy in %, axis m and the axes of its grid cell."""
    rows = []
    for record in records:
        row = {"regime": regime_of(record), **record.cell, **vars(record)}
        m = m_of(record.method, row["regime"], record.shots)
        rows.append(row | {"m": m, "accuracy": 100 * record.accuracy, "record": record})
    columns = dict.fromkeys(_COLUMNS)
    for row in rows:
        columns |= dict.fromkeys(row)
    return pd.DataFrame(rows, columns=list(columns))


def regime_of(record: Record) -> str:
    """Return the regime of a record's grid; FULL if it has none."""
    return record.cell.get("regime", FULL)


def m_of(method: str, regime: str, shots: int) -> int:
    """Return the value of axis m: the train rows per class, or FILLS_CONTEXT if the method uses only demonstrations."""
    fills_context = rows_used(method) in ("demonstrations", "draws") and regime != FEW_SHOT
    return FILLS_CONTEXT if fills_context else shots


def right_rows(record: Record) -> np.ndarray:
    """Return which predictions are right, [rows] in 0 and 1."""
    return (np.array(record.predicted) == np.array(record.true)).astype(np.int8)


def check(frame: pd.DataFrame, axes: Sequence[str], apart: Sequence[str] = ()) -> None:
    """Check that records with equal values on the axes differ in their seeds and in no other setting.

    Args:
        apart: fields in which records with equal seeds may differ.

    Raises:
        UserError: two records have the same seed, or different settings.
    """
    for key, runs in groups(frame, axes).items():
        repeated = [group for group in groups(runs, [*apart, "seed"]).values() if len(group) > 1]
        compared = repeated[0] if repeated else runs
        settings = pd.json_normalize([_settings(record) for record in compared.record]).map(str)
        if not repeated:
            settings = settings.drop(columns=["seed", "rows", *apart])
        differing = settings.columns[settings.nunique() > 1]
        if not repeated and differing.empty:
            continue
        where = _where(axes, key)
        which = f"of the same run ({where})" if differing.empty else f"({where}) differ in {', '.join(differing)}"
        files = ", ".join(record.file_name for record in compared.record)
        raise errors.UserError(f"{len(compared)} records {which}: move some of {files} elsewhere")


def check_test_rows(frame: pd.DataFrame, axes: Sequence[str]) -> None:
    """Raise UserError unless records with equal values on the axes have the same test rows."""
    for key, runs in groups(frame, axes).items():
        if runs.true.nunique() > 1:
            files = ", ".join(runs.drop_duplicates("true").file_name)
            raise errors.UserError(
                f"records ({_where(axes, key)}) have different test rows: {files}; move some elsewhere"
            )


def _where(axes: Sequence[str], key: Sequence[Any]) -> str:
    """Return the values on the axes in words, without those that the records lack."""
    return ", ".join(f"{axis} {value}" for axis, value in zip(axes, key, strict=True) if value == value)


def _settings(record: Record) -> dict[str, Any]:
    """Return all that may differ between records, with rows and weights by content."""
    settings = {name: value for name, value in record.settings.items() if name not in _LAST_DIGITS}
    return settings | {
        "rows": settings.get("task"),
        "weights": settings.get("model"),
        "demo_shots": record.demo_shots,
        "seed": record.seed,
        "task": record.task,
        "model": record.model,
        "cell": record.cell,
        "rows_from": {name: value for name, value in record.source.items() if value},
    }


def cell_axes(frame: pd.DataFrame) -> list[str]:
    """Return the axes of the frame's grid that are not fields of every record."""
    return [name for name in frame.columns if name not in _COLUMNS]


def rows_used(method: str) -> str:
    """Return which rows a method uses (`Method.rows_used`); empty for an unknown method."""
    return METHODS[method].rows_used if method in METHODS else ""


def groups(frame: pd.DataFrame, axes: Sequence[str]) -> dict[tuple, pd.DataFrame]:
    """Return the rows by their values on the axes, in order of first appearance."""
    return {} if frame.empty else dict(iter(frame.groupby(list(axes), sort=False, dropna=False)))


def by_model(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the rows of each language model; methods that train a model of their own appear with every model."""
    own_model = [name for name, method in METHODS.items() if method.own_model]
    is_own = frame.method.isin(own_model)
    models = sorted(frame.model[~is_own].unique()) or [frame.model.iloc[0]]
    return {model: frame[(frame.model == model) | is_own] for model in models}


def accuracy(frame: pd.DataFrame) -> Score:
    """Return the accuracy in % of rows that differ only in their seed.

    For a search over random prompts, the note is the number of prompts per 1,000 that equal the best.
    """
    score = Score.of(frame.accuracy)
    candidates = frame.candidates.explode().dropna()
    if len(candidates) and rows_used(frame.method.iloc[0]) == "draws":
        is_best = candidates == candidates.max()
        return dataclasses.replace(score, note=f"{1000 * is_best.mean():.3g} ‰")
    return score


def average(frame: pd.DataFrame) -> Score:
    """Return the average over tasks; its spread is over the seeds that every task has."""
    by_seed = frame.groupby(["seed", "task"]).accuracy.last().unstack()
    shared = by_seed.dropna()
    return Score.of(shared.mean(axis=1)) if len(shared) > 1 else Score(float(by_seed.mean().mean()))


def settle_templates(frame: pd.DataFrame) -> pd.DataFrame:
    """Replace the accuracy of records with several templates by that of the template with the best mean over seeds."""
    frame = frame.copy()
    axes = ["model", "task", "method", "shots", "demo_shots", "regime", *cell_axes(frame)]
    for group in groups(_with_templates(frame), axes).values():
        best = noisy_channel.best_template(group.candidates.tolist())
        frame.loc[group.index, "accuracy"] = [100 * accuracies[best] for accuracies in group.candidates]
    return frame


def with_best_template_per_seed(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with several templates, each with its seed's best template, under a method name of their own."""
    chosen = _with_templates(frame)
    return chosen.assign(
        method=[BEST_TEMPLATE.format(METHODS[name].title) for name in chosen.method],
        accuracy=[100 * max(accuracies) for accuracies in chosen.candidates],
        candidates=[()] * len(chosen),
    )


def of_predictions(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with the accuracies of their predictions, which are those of each seed's best template."""
    chosen = with_best_template_per_seed(frame)
    return pd.concat([frame.drop(chosen.index), chosen])


def _with_templates(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame.method.isin(_WITH_TEMPLATES) & (frame.candidates.map(len) > 1)]
