"""Records as a DataFrame with a row per record, and mean ± sample standard deviation over seeds."""

import dataclasses
import statistics
from collections.abc import Iterable, Sequence

import pandas as pd

from knnprompt_jax import errors
from knnprompt_jax.methods import noisy_channel, registry
from knnprompt_jax.runs import records as records_lib
from knnprompt_jax.settings import grids

Record = records_lib.Record
FULL, FEW_SHOT = grids.REGIMES
FILLS_CONTEXT = 0  # The value of axis m for a method whose demonstrations fill the context (M_T).
BEST_TEMPLATE = "{}, best template of each seed"
_COLUMNS = (*(field.name for field in dataclasses.fields(Record)), "m", "regime", "record")
_WITH_TEMPLATES = [method.name for method in noisy_channel.METHODS]


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
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


def frame(records: Sequence[Record]) -> pd.DataFrame:
    """Return a row per record: its fields, accuracy in %, axis m and the axes of its grid cell."""
    rows = []
    for record in records:
        row = {"regime": FULL, **record.cell, **vars(record)}
        fills_context = rows_used(record.method) in ("demonstrations", "draws") and row["regime"] != FEW_SHOT
        m = FILLS_CONTEXT if fills_context else record.shots
        rows.append(row | {"m": m, "accuracy": 100 * record.accuracy, "record": record})
    return pd.DataFrame(rows, columns=list(dict.fromkeys([*_COLUMNS, *(name for row in rows for name in row)])))


def check(frame: pd.DataFrame, axes: Sequence[str], apart: Sequence[str] = ()) -> None:
    """Raise UserError unless the records at each place on the axes have different seeds, and otherwise the same settings.

    Records that differ in `apart` may have the same seed.
    """
    for place, runs in groups(frame, axes).items():
        same = next((same for _, same in groups(runs, [*apart, "seed"]).items() if len(same) > 1), runs)
        settings = pd.json_normalize([_settings(record) for record in same.record]).map(str)
        if same is runs:
            settings = settings.drop(columns=["seed", "rows", *apart])
        if (differing := settings.columns[settings.nunique() > 1]).size or same is not runs:
            where = ", ".join(f"{axis} {value}" for axis, value in zip(axes, place, strict=True) if value == value)
            files = ", ".join(record.file_name for record in same.record)
            which = f"({where}) differ in {', '.join(differing)}" if differing.size else f"of the same run ({where})"
            raise errors.UserError(f"{len(same)} records {which}: move some of {files} elsewhere")


def _settings(record: Record) -> dict:
    """Return all that may differ between records; rows and weights by content. Batch and mesh change the last digits only."""
    settings = {name: value for name, value in record.settings.items() if name not in ("batch", "mesh")}
    settings |= {"rows": settings.get("task"), "weights": settings.get("model"), "demo_shots": record.demo_shots}
    settings |= {"seed": record.seed, "task": record.task, "model": record.model, "cell": record.cell}
    return settings | {"rows_from": {name: value for name, value in record.source.items() if value}}


def cell_axes(frame: pd.DataFrame) -> list[str]:
    """Return the axes of the frame's grid that are not fields of every record."""
    return [name for name in frame.columns if name not in _COLUMNS]


def rows_used(method: str) -> str:
    """Return which rows a method uses (`Method.rows_used`); empty for an unknown method."""
    return registry.METHODS[method].rows_used if method in registry.METHODS else ""


def groups(frame: pd.DataFrame, axes: Sequence[str]) -> dict[tuple, pd.DataFrame]:
    """Return the rows by their values on the axes, in order of first appearance."""
    return {} if frame.empty else dict(iter(frame.groupby(list(axes), sort=False, dropna=False)))


def by_model(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the rows of each language model; methods that train a model of their own appear with every model."""
    own = frame.method.isin([name for name, method in registry.METHODS.items() if method.own_model])
    models = sorted(frame.model[~own].unique()) or [frame.model.iloc[0]]
    return {model: frame[(frame.model == model) | own] for model in models}


def accuracy(frame: pd.DataFrame) -> Score:
    """Return the accuracy in % of rows that differ only in their seed.

    For a search over random prompts, the note is the number of prompts per 1,000 that equal the best.
    """
    score, tried = Score.of(frame.accuracy), frame.candidates.explode().dropna()
    if len(tried) and rows_used(frame.method.iloc[0]) == "draws":
        return dataclasses.replace(score, note=f"{1000 * (tried == tried.max()).mean():.3g} ‰")
    return score


def average(frame: pd.DataFrame) -> Score:
    """Return the average over tasks; its spread is over the seeds that every task has."""
    by_seed = frame.groupby(["seed", "task"]).accuracy.last().unstack()
    shared = by_seed.dropna()
    return Score.of(shared.mean(axis=1)) if len(shared) > 1 else Score(float(by_seed.mean().mean()))


def settle_templates(frame: pd.DataFrame) -> pd.DataFrame:
    """Choose a template: the accuracy of a record with several becomes that of the template with the best mean over seeds."""
    frame = frame.copy()
    places = ["model", "task", "method", "shots", "demo_shots", "regime", *cell_axes(frame)]
    for group in groups(_with_templates(frame), places).values():
        best = noisy_channel.best_template(group.candidates.tolist())
        frame.loc[group.index, "accuracy"] = [100 * accuracies[best] for accuracies in group.candidates]
    return frame


def with_best_template_per_seed(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with several templates, each with its seed's best template, under a method name of their own."""
    chosen = _with_templates(frame)
    return chosen.assign(
        method=[BEST_TEMPLATE.format(registry.get(name).title) for name in chosen.method],
        accuracy=[100 * max(accuracies) for accuracies in chosen.candidates],
        candidates=[()] * len(chosen),
    )


def _with_templates(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame.method.isin(_WITH_TEMPLATES) & (frame.candidates.map(len) > 1)]
