"""Tables of AutoClassifier beside methods that see the same train rows, in Markdown.

A column is a set of tasks at m train rows per class. Its cells are the tasks and seeds that AutoClassifier has records
of; a method without a record of each is left out of it.
"""

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from knnprompt_jax.report import names, results
from knnprompt_jax.report import records as records_lib
from tools import intervals, markdown, scales

AUTO = "auto"
WITH_ENCODER = "auto with encoder"  # A pseudo-method: the pool with a sentence encoder's expert.
CENTRED = "auto with unlabelled"  # Another: the pool whose scores are relative to the rows to classify.
NO_MODEL = ("tfidf", "encoder_probe")  # The same result with every language model.
METHODS = ("tfidf", "encoder_probe", "icl", "batch_calibration", "knn", "linear_probe", AUTO, CENTRED, WITH_ENCODER)
SAME_ROWS = ("tfidf", "icl", "knn", "hidden_centroids", "linear_probe", AUTO)
BINARY = ("sst2", "subj", "mpqa", "cr", "mr")

_ESTIMATE = re.compile(r"accuracy ([\d.]+) % \(95 % interval ([\d.]+) to ([\d.]+)\)")
_MARGIN = 3  # Points.


class Column(NamedTuple):
    """Tasks at m train rows per class, with the head of the column."""

    title: str
    tasks: tuple[str, ...]
    m: int


COLUMNS = (
    *(Column(f"m = {m}", BINARY, m) for m in (8, 32, 128)),
    Column("TREC, m = 128", ("trec",), 128),
    Column("HWU64, m = 10", ("hwu64",), 10),
    Column("BANKING77, m = 10", ("banking77",), 10),
)
OTHER_SIZES = tuple(Column(f"m = {m}", BINARY, m) for m in (2, 4, 16))
OTHER_TASKS = (
    Column("AGNews, m = 128", ("agnews",), 128),
    Column("CB, m = 128", ("cb",), 128),
    Column("RTE, m = 128", ("rte",), 128),
    Column("DBPedia, m = 32", ("dbpedia",), 32),
    Column("HWU64, m = 5", ("hwu64",), 5),
    Column("BANKING77, m = 5", ("banking77",), 5),
)


class Results:
    """Records by model, method, task, m and seed; of two records of the same run, the first is kept.

    Attributes:
        records: the records that are kept.
    """

    def __init__(self, records: Iterable[records_lib.Record]):
        self.records: list[records_lib.Record] = []
        self._right: dict[tuple[str, str, str, int], dict[int, np.ndarray]] = {}
        for record in records:
            method = record.method
            options = record.settings["options"]
            if method == AUTO and (options.get("encoder") or options.get("unlabelled")):
                method = WITH_ENCODER if options.get("encoder") else CENTRED
            model = "" if method in NO_MODEL else scales.model_of(record)
            m = results.m_of(method, record.cell.get("regime", results.FULL), record.shots)
            by_seed = self._right.setdefault((model, method, record.task, m), {})
            if record.seed not in by_seed:
                by_seed[record.seed] = intervals.right_rows(record)
                self.records.append(record)

    def cells(self, model: str, column: Column) -> Mapping[str, Sequence[int]]:
        """Return the seeds of each of the column's tasks that AutoClassifier has; empty if it lacks a task."""
        found = {task: sorted(self._right.get((model, AUTO, task, column.m), ())) for task in column.tasks}
        return found if all(found.values()) else {}

    def columns(self, model: str) -> list[Column]:
        """Return the columns that AutoClassifier has with this model."""
        return [column for column in COLUMNS if self.cells(model, column)]

    def right(self, model: str, method: str, column: Column) -> list[np.ndarray]:
        """Return which predictions are right [seeds, rows] for each task of `cells`; empty if a record is missing."""
        model_of_method = "" if method in NO_MODEL else model
        found = []
        for task, seeds in self.cells(model, column).items():
            keys = [(model_of_method, method, task, m) for m in (column.m, results.FILLS_CONTEXT)]
            by_seed = next((self._right[key] for key in keys if key in self._right), {})
            if not all(seed in by_seed for seed in seeds):
                return []
            found.append(np.stack([by_seed[seed] for seed in seeds]))
        return found

    def mean(self, model: str, method: str, column: Column) -> float | None:
        """Return the mean accuracy in % over the column's tasks; None if a record is missing."""
        found = self.right(model, method, column)
        return statistics.fmean(100 * right_SQ.mean() for right_SQ in found) if found else None


def by_rows(own: Results, model: str, columns: Sequence[Column] = COLUMNS) -> str:
    """Return methods against those columns that AutoClassifier has: mean accuracies of a model."""
    columns = [column for column in columns if own.cells(model, column)]
    rows = []
    for method in METHODS:
        means = [own.mean(model, method, column) for column in columns]
        if any(means):
            rows.append([_title(method), *("–" if mean is None else f"{mean:.1f}" for mean in means)])
    return markdown.table(["accuracy, %", *(column.title for column in columns)], rows)


def leads(own: Results, models: Sequence[str]) -> str:
    """Return AutoClassifier minus the best other method that sees the same rows, for each model and column."""
    columns = [column for column in COLUMNS if any(own.cells(model, column) for model in models)]
    rows = []
    for model in filter(own.columns, models):
        row = [scales.MODELS[model].short]
        for column in columns:
            best = best_rival(own, model, column)
            row.append(f"{lead(own, model, column.title)} ({names.method(best)})" if best else "–")
        rows.append(row)
    return markdown.table(["AutoClassifier minus …", *(column.title for column in columns)], rows)


def lead(own: Results, model: str, title: str) -> str:
    """Return AutoClassifier minus the best other method in the column with this title, with its interval."""
    (column,) = [column for column in COLUMNS if column.title == title]
    ours = own.right(model, AUTO, column)
    theirs = own.right(model, best_rival(own, model, column), column)
    return str(intervals.bootstrap([ours_SQ - theirs_SQ for ours_SQ, theirs_SQ in zip(ours, theirs, strict=True)]))


def best_rival(own: Results, model: str, column: Column) -> str:
    """Return the method with the highest mean among those that see the same rows; empty without records."""
    means = {name: own.mean(model, name, column) for name in SAME_ROWS if name != AUTO}
    found = {name: mean for name, mean in means.items() if mean is not None}
    return max(found, key=found.__getitem__, default="")


def seeds(own: Results, model: str, columns: Sequence[Column] = COLUMNS) -> str:
    """List the numbers of seeds of those columns that AutoClassifier has."""
    found = {column.title: own.cells(model, column) for column in columns}
    counts = {title: min(map(len, cells.values())) for title, cells in found.items() if cells}
    return ", ".join(f"{title}: {count}" for title, count in counts.items())


def estimates(own: Results) -> str:
    """Describe how far the estimates of accuracy on the train rows are from the accuracies on the test rows."""
    found = []
    for record in own.records:
        if record.method == AUTO and (printed := _ESTIMATE.search(record.note)):
            found.append([100 * intervals.right_rows(record).mean(), *map(float, printed.groups())])
    test_R, estimate_R, low_R, high_R = np.array(found).T
    num_inside = int(((low_R - _MARGIN <= test_R) & (test_R <= high_R + _MARGIN)).sum())
    bias = float((estimate_R - test_R).mean())
    return (
        f"on average {bias:+.1f} points; in {num_inside} of {len(found)} runs the accuracy is within {_MARGIN} points of "
        f"the printed interval"
    )


def _title(method: str) -> str:
    further = {WITH_ENCODER: " with the sentence encoder", CENTRED: " with unlabelled test rows"}
    return f"{names.method(AUTO)}{further[method]}" if method in further else names.method(method)
