"""Records as a DataFrame with a row per record, and mean ± sample standard deviation over seeds."""

import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from knnprompt_jax.common import errors
from knnprompt_jax.methods import all_methods, noisy_channel
from knnprompt_jax.methods import method as method_lib
from knnprompt_jax.report import records as records_lib

Record = records_lib.Record
FULL = "full"  # |D| = M_T.
FEW_SHOT = "few-shot"  # One demonstration per class for methods with anchors, m for all others.
FILLS_CONTEXT = 0  # The value of axis m for a method whose demonstrations fill the context (M_T).
_COLUMNS = (*(field.name for field in dataclasses.fields(Record)), "m", "regime", "record")
_WITH_TEMPLATES = [method.name for method in noisy_channel.METHODS]


@dataclasses.dataclass(frozen=True)
class KnownMethod:
    """A method that trains a model, as tables describe it; the fields are those of `methods.method.Method`."""

    title: str
    printed_as: tuple[str, ...] = ()
    rows_used: str = "train"


METHODS: dict[str, method_lib.Method | KnownMethod] = {
    **all_methods.METHODS,
    "fine_tuning": KnownMethod("Fine-tuning"),
    "fine_tuning_bert": KnownMethod("Fine-tuning, BERT-large", ("BERT Large FT",)),
    "fine_tuning_gpt2": KnownMethod("Fine-tuning, GPT-2 large", ("GPT Large FT",)),
}
# The model that a method trains; all others read the language model of the run.
OWN_MODELS = {"fine_tuning_bert": "google-bert/bert-large-uncased", "fine_tuning_gpt2": "openai-community/gpt2-large"}


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
        row = {"regime": FULL, **record.cell, **vars(record)}
        m = m_of(record.method, row["regime"], record.shots)
        rows.append(row | {"m": m, "accuracy": 100 * record.accuracy, "record": record})
    columns = dict.fromkeys([*_COLUMNS, *(name for row in rows for name in row)])
    return pd.DataFrame(rows, columns=list(columns))


def m_of(method: str, regime: str, shots: int) -> int:
    """Return the value of axis m: the train rows per class, or FILLS_CONTEXT if the method uses only demonstrations."""
    fills_context = rows_used(method) in ("demonstrations", "random") and regime != FEW_SHOT
    return FILLS_CONTEXT if fills_context else shots


def check(frame: pd.DataFrame, axes: Sequence[str]) -> None:
    """Raise UserError unless records with equal values on the axes differ in their seeds and in no other setting."""
    for runs in groups(frame, axes).values():
        settings = pd.json_normalize([_settings(record) for record in runs.record]).map(str)
        differing = settings.columns[settings.nunique() > 1]
        if len(differing) or runs.seed.duplicated().any():
            what = f"differ in {', '.join(differing)}" if len(differing) else "have the same seed"
            files = ", ".join(runs.file_name)
            raise errors.UserError(f"{len(runs)} records of the same cell {what}; move some elsewhere: {files}")


def check_test_rows(frame: pd.DataFrame, axes: Sequence[str]) -> None:
    """Raise UserError unless records with equal values on the axes have the same test rows."""
    for runs in groups(frame, axes).values():
        if runs.true.nunique() > 1:
            files = ", ".join(runs.drop_duplicates("true").file_name)
            raise errors.UserError(f"records of the same cell have different test rows; move some elsewhere: {files}")


def _settings(record: Record) -> dict[str, Any]:
    """Return all that may not differ between the seeds of a cell; rows, which do, are compared by their options."""
    settings = {name: value for name, value in record.settings.items() if name not in ("seed", "task")}
    options = {name: value for name, value in record.source.items() if value}
    own = {"demo_shots": record.demo_shots, "model": record.model, "cell": record.cell, "row options": options}
    return {**settings, "weights": settings.get("model"), **own}


def rows_used(method: str) -> str:
    """Return which rows a method uses (`Method.rows_used`); empty for an unknown method."""
    return METHODS[method].rows_used if method in METHODS else ""


def groups(frame: pd.DataFrame, axes: Sequence[str]) -> dict[tuple, pd.DataFrame]:
    """Return the rows by their values on the axes, in order of first appearance."""
    return {} if frame.empty else dict(iter(frame.groupby(list(axes), sort=False, dropna=False)))


def by_model(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the rows of each language model; methods that train a model of their own appear with every model."""
    is_own = frame.method.isin(OWN_MODELS)
    models = sorted(frame.model[~is_own].unique()) or [frame.model.iloc[0]]
    return {model: frame[(frame.model == model) | is_own] for model in models}


def accuracy(frame: pd.DataFrame) -> Score:
    """Return the accuracy in % of rows that differ only in their seed.

    For a search over random prompts, the note is the number of prompts per 1,000 that equal the best.
    """
    score = Score.of(frame.accuracy)
    candidates = frame.candidates.explode().dropna()
    if len(candidates) and rows_used(frame.method.iloc[0]) == "random":
        is_best = candidates == candidates.max()
        return dataclasses.replace(score, note=f"{1000 * is_best.mean():.3g} ‰")
    return score


def average(frame: pd.DataFrame) -> Score:
    """Return the average over tasks; its spread is over the seeds that every task has."""
    by_seed = frame.groupby(["seed", "task"]).accuracy.last().unstack()
    shared = by_seed.dropna()
    return Score.of(shared.mean(axis=1)) if len(shared) > 1 else Score(float(by_seed.mean().mean()))


def with_best_template(frame: pd.DataFrame) -> pd.DataFrame:
    """Replace the accuracy of records with several templates by that of the template with the best mean over seeds.

    This is the paper's "best of four". Choosing a template for each seed would give a mean of maxima, which is higher.
    """
    frame = frame.copy()
    axes_of_grid = [name for name in frame.columns if name not in _COLUMNS]
    axes = ["model", "task", "method", "shots", "demo_shots", "regime", *axes_of_grid]
    with_templates = frame[frame.method.isin(_WITH_TEMPLATES) & (frame.candidates.map(len) > 1)]
    for group in groups(with_templates, axes).values():
        best = np.mean(group.candidates.tolist(), axis=0).argmax()
        frame.loc[group.index, "accuracy"] = [100 * accuracies[best] for accuracies in group.candidates]
    return frame
