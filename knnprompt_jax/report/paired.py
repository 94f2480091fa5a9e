"""Paired differences between kNN Prompting and each other method, and what they say of it."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pandas as pd

from knnprompt_jax.report import accuracies, intervals, names, published, results, tables
from knnprompt_jax.report.results import Score
from knnprompt_jax.report.tables import Cell, Table

CLEAR = (
    "the 95 % interval of a paired bootstrap over test rows and seeds excludes zero; with few seeds, it is too narrow"
)
_AHEAD, _BEHIND, _UNCLEAR = range(3)


def build(name: str, ours: pd.DataFrame, axes: Sequence[str]) -> Table:
    """Return kNN Prompting's accuracy minus each other method's on the same rows with the same seeds.

    A method that uses only demonstrations is compared at every m, and one that trains a model of its own with every
    model. The average is over `_averaged` tasks.
    """
    by_model = results.by_model(results.of_predictions(ours))
    ours = pd.concat([runs.assign(model=model) for model, runs in by_model.items()], ignore_index=True)
    axes = [axis for axis in axes if axis not in ("method", "m")]
    tasks = names.ordered("task", ours.task)
    cells = {}
    for key, pairs in results.groups(_pairs(ours, axes), [*axes, "m", "method_other"]).items():
        for task, group in pairs.groupby("task"):
            cells[*key, task] = _cell([group])
        averaged = _averaged(ours[(ours.method == "knn") & (ours.model == pairs.model.iloc[0])])
        complete = _complete(pairs, averaged)
        if complete:
            note = names.counted(len(averaged), "task") if len(averaged) < len(tasks) else ""
            average = _cell(complete, note)
            seeds = accuracies.shared_seeds(len(complete[0]), pairs[pairs.task.isin(averaged)])
            cells[*key, published.AVERAGE] = dataclasses.replace(average, marks=average.marks + seeds)
    caption = (
        "kNN Prompting's accuracy minus each other method's in points, mean ± sample standard deviation over seeds."
    )
    table = tables.build(f"{name}_paired", caption, [*axes, "m", "method"], accuracies.columns(tasks), cells)
    table = dataclasses.replace(table, headers=(*table.headers[:-1], "against"))
    return dataclasses.replace(table, findings=tuple(_findings(table, ours)))


def _pairs(ours: pd.DataFrame, axes: Sequence[str]) -> pd.DataFrame:
    """Return a row per pair of records of kNN Prompting and another method, with the same seed and test rows.

    The column `points` has the difference of their accuracies. `better` has 1 for each row of which only our prediction
    is right, −1 if only theirs is right, and 0 otherwise.
    """
    is_knn = ours.method == "knn"
    shared = list(dict.fromkeys([*axes, "regime", "task", "seed"]))
    pairs = ours[is_knn].merge(ours[~is_knn], on=shared, suffixes=("", "_other"))
    same_m = (pairs.m_other == results.FILLS_CONTEXT) | (pairs.m_other == pairs.m)
    pairs = pairs[same_m & (pairs.true == pairs.true_other)]
    results.check_test_rows(pairs, [*axes, "m", "task"])
    records = zip(pairs.record, pairs.record_other, strict=True)
    better = [results.right_rows(ours) - results.right_rows(theirs) for ours, theirs in records]
    return pairs.assign(points=pairs.accuracy - pairs.accuracy_other, better=better)


def _complete(pairs: pd.DataFrame, tasks: Sequence[str]) -> list[pd.DataFrame]:
    """Return the pairs of each task with the seeds that all these tasks have; nothing if they share no seed."""
    by_task = [pairs[pairs.task == task] for task in tasks]
    seeds = set.intersection(*(set(group.seed) for group in by_task))
    return [group[group.seed.isin(seeds)].sort_values("seed") for group in by_task] if seeds else []


def _cell(groups: Sequence[pd.DataFrame], note: str = "") -> Cell:
    """Return the mean difference over tasks, given the pairs of each task, marked if its interval excludes zero."""
    by_seed = pd.concat(groups).groupby("seed", sort=False).points.mean() if len(groups) > 1 else groups[0].points
    interval = intervals.bootstrap([np.stack(list(group.better)) for group in groups])
    score = dataclasses.replace(Score.of(by_seed), note=note)
    return Cell(score, marks=(CLEAR,) if interval.sign else ())


def _findings(table: Table, ours: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return a row per model at its largest m: what was run, and the methods that it is ahead of, behind, or neither.

    The numbers are mean differences over tasks in points. Tables with an axis of their own have no findings.
    """
    has_average = published.AVERAGE in table.columns or ours[ours.method == "knn"].task.nunique() == 1
    if table.headers not in (("Model", "m", "against"), ("m", "against")) or not has_average:
        return []
    found: dict[tuple[str, str], tuple[list[str], list[str], list[str]]] = {}
    for row in table.rows:
        *model, m, method = row.headers
        cell = row.cells[-1]
        if cell.ours:
            title = model[0] if model else names.model(ours.model.iloc[0])
            kinds = found.setdefault((title, m), ([], [], []))
            kinds[_kind(cell)].append(f"{method} {tables.signed(cell.ours.mean)}")
    last = {title: (m, kinds) for (title, m), kinds in found.items()}  # The rows are in the order of m.
    return [
        (_describe(title, m, ours), *("; ".join(methods) or "–" for methods in kinds))
        for title, (m, kinds) in last.items()
    ]


def _kind(cell: Cell) -> int:
    if CLEAR not in cell.marks or cell.ours is None:
        return _UNCLEAR
    return _BEHIND if cell.ours.mean < 0 else _AHEAD


def _describe(model: str, m: str, ours: pd.DataFrame) -> str:
    """Return what kNN Prompting ran with, for a model and an m as the table shows them."""
    runs = ours[(ours.method == "knn") & (ours.model.map(names.model) == model)]
    runs = runs[[names.text("m", each) == m for each in runs.m]]
    averaged = _averaged(runs)
    tasks = names.task(averaged[0]) if len(averaged) == 1 else names.counted(len(averaged), "task")
    noun = "demonstration" if max(runs.demo_shots) == 1 else "demonstrations"
    demonstrations = f"{names.span(runs.demo_shots)} {noun} per class"
    return "; ".join([model, f"m = {m}", demonstrations, *names.directions(runs.record), tasks])


def _averaged(runs: pd.DataFrame) -> list[str]:
    """Return the tasks with several seeds, or all: a task with one seed would leave a single seed to compare."""
    num_seeds = runs.groupby("task").seed.nunique()
    return list(num_seeds[num_seeds > 1].index) or list(num_seeds.index)
