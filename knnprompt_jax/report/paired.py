"""kNN Prompting against each other method on the same rows with the same seeds: differences in pairs, and their tests."""

import statistics
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

from knnprompt_jax.report import accuracy_table, names, published, scores
from knnprompt_jax.report.scores import Record
from knnprompt_jax.report.tables import Cell, Table, TableRow

DIFFERS = (
    "p < 0.05 (t-test of the pairs over seeds; of one seed McNemar's exact test over rows); 1 in 20 is so by chance"
)
_LEVEL = 0.05
Pairs = Mapping[int, tuple[Record, Record]]  # By seed: kNN Prompting's record and the other method's.


def table(
    name: str,
    records: Sequence[Record],
    axes: Sequence[str],
    marks: accuracy_table.Marks = lambda records: (),
) -> Table | None:
    """kNN Prompting's accuracy less each other method's, by the same axes; None where there are no pairs.

    A method that sees demonstrations alone is compared at every m. `marks` gives the further marks of a cell's records.
    """
    places = tuple(axis for axis in axes if axis not in ("method", "m"))
    tasks = names.ordered("task", [record.task for record in records])
    rows = []
    ours, others = ([record for record in records if (record.method == "knn") is ours] for ours in (True, False))
    by_place = scores.pool(others, *places, "method")
    groups = scores.pool(ours, *places, "m")
    for place in names.ordered_places((*places, "m"), groups):
        for other in names.ordered("method", [key[-1] for key in by_place if key[:-1] == place[:-1]]):
            theirs = [
                record for record in by_place[(*place[:-1], other)] if scores.axis(record, "m") in (None, place[-1])
            ]
            pairs = {task: _pairs(groups[place], theirs, task) for task in tasks}
            if any(pairs.values()):
                headers = (*map(names.text, (*places, "m"), place), names.method(other))
                rows.append(TableRow(headers, _cells(list(pairs.values()), marks)))
    header = tuple(names.HEADERS.get(axis, axis) for axis in (*places, "m"))
    average = (published.AVERAGE,) if len(tasks) > 1 else ()
    caption = "kNN Prompting's accuracy less each other method's in points, mean ± sample standard deviation of the pairs over seeds."
    columns = (*map(names.task, tasks), *average)
    return Table(f"{name}_paired", caption, (*header, "against"), columns, tuple(rows)) if rows else None


def _pairs(ours: Sequence[Record], theirs: Sequence[Record], task: str) -> Pairs:
    """Records of the same seed and the same rows."""
    by_seed = {record.seed: record for record in theirs if record.task == task}
    found = {
        record.seed: (record, by_seed[record.seed]) for record in ours if record.task == task and record.seed in by_seed
    }
    return {seed: pair for seed, pair in found.items() if pair[0].true == pair[1].true}


def _cells(by_task: Sequence[Pairs], marks: accuracy_table.Marks) -> tuple[Cell, ...]:
    """A cell for each task, then the average over tasks of the seeds that all have."""
    cells = []
    for pairs in by_task:
        told = marks([record for pair in pairs.values() for record in pair])
        cells.append(_cell([_difference(pair) for pair in pairs.values()], list(pairs.values()), told))
    if len(by_task) > 1:
        seeds = set.intersection(*map(set, by_task))
        cells.append(
            _cell([statistics.fmean([_difference(pairs[seed]) for pairs in by_task]) for seed in sorted(seeds)])
        )
    return tuple(cells)


def _cell(
    differences: Sequence[float], pairs: Sequence[tuple[Record, Record]] = (), told: tuple[str, ...] = ()
) -> Cell:
    if not differences:
        return Cell()
    differs = p_value(differences, pairs) < _LEVEL
    return Cell(scores.of([float(each) for each in differences]), marks=((DIFFERS,) if differs else ()) + told)


def _difference(pair: tuple[Record, Record]) -> float:
    return 100 * (pair[0].accuracy - pair[1].accuracy)


def p_value(differences: Sequence[float], pairs: Sequence[tuple[Record, Record]] = ()) -> float:
    """Of the hypothesis that both are equally good: over seeds, or of a single seed over its rows; 1 where nothing can be said."""
    if len(differences) > 1:
        alike = np.ptp(differences) < 1e-9
        return 1.0 if alike else float(stats.ttest_1samp(differences, 0.0).pvalue)
    if not pairs:
        return 1.0
    ours, theirs = (np.array(record.predicted) == np.array(record.true) for record in pairs[0])
    better, worse = int((ours & ~theirs).sum()), int((theirs & ~ours).sum())
    return float(stats.binomtest(better, better + worse).pvalue) if better + worse else 1.0
