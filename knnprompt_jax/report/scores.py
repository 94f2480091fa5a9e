"""Mean and spread over seeds of groups of records, and how far from the paper's they are."""

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from knnprompt_jax.methods import registry
from knnprompt_jax.runs import records as records_lib

FEW_SHOT = "few-shot"  # The regime with one demonstration per class.
Record = records_lib.Record
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Score:
    """A mean over `count` values, in the unit of its table, and their sample standard deviation (ddof = 1) where known;
    `note` stands behind it in brackets."""

    mean: float
    std: float | None = None
    count: int = 1
    note: str = ""

    @property
    def variance_of_mean(self) -> float | None:
        return None if self.std is None else self.std**2 / self.count


def of(values: Sequence[float]) -> Score:
    """The score of some values; one value has no spread."""
    return Score(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


def two_standard_errors(ours: Score, paper: Score) -> float | None:
    """Twice the standard error of the difference of two means; None where one of them has no spread."""
    if ours.variance_of_mean is None or paper.variance_of_mean is None:
        return None
    return 2 * math.sqrt(ours.variance_of_mean + paper.variance_of_mean)


def axis(record: Any, name: str) -> Any:
    """The place of a record, or of a number of the paper's, on an axis: a field of it or of its cell; None where it has neither.

    The axis "m" is shots, or None for a method that sees only demonstrations, as many as the context holds (M_T).
    """
    if name in vars(record):
        return vars(record)[name]
    if name == "m":
        fills_context = _sees(record) in ("demonstrations", "draws") and record.cell.get("regime") != FEW_SHOT
        return None if fills_context else record.shots
    return record.cell.get(name)


def _sees(record: Record) -> str:
    return registry.METHODS[record.method].sees if record.method in registry.METHODS else ""


def pool(records: Iterable[T], *axes: str) -> dict[tuple, list[T]]:
    """The records by their places on some axes, in the order in which the places first appear."""
    groups: dict[tuple, list[T]] = {}
    for record in records:
        groups.setdefault(tuple(axis(record, name) for name in axes), []).append(record)
    return groups


def by_model(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The records of each language model; those of methods that train a model of their own stand with each."""
    models = sorted({record.model for record in records if not _has_own_model(record)}) or [records[0].model]
    return {
        model: [record for record in records if record.model == model or _has_own_model(record)] for model in models
    }


def _has_own_model(record: Record) -> bool:
    return record.method in registry.METHODS and registry.METHODS[record.method].own_model


def accuracy(records: Sequence[Record]) -> Score:
    """Accuracy in % of records that differ in nothing but their seed; of random prompts, how many of 1,000 are as good as the best."""
    score = of([100 * record.accuracy for record in records])
    tried = [value for record in records for value in record.candidates]
    if tried and _sees(records[0]) == "draws":
        return dataclasses.replace(score, note=f"{1000 * tried.count(max(tried)) / len(tried):.3g} ‰")
    return score


def average(records: Iterable[Record]) -> Score:
    """Accuracy in %, averaged over tasks; its spread is over the seeds that every task has."""
    by_task = {task: {record.seed: record for record in group} for (task,), group in pool(records, "task").items()}
    seeds = set.intersection(*(set(runs) for runs in by_task.values()))
    if len(seeds) > 1:
        return of([statistics.fmean(100 * runs[seed].accuracy for runs in by_task.values()) for seed in sorted(seeds)])
    return Score(statistics.fmean(accuracy(list(runs.values())).mean for runs in by_task.values()))
