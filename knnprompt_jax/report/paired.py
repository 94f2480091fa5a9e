"""Paired differences between kNN Prompting and each other method, and what they say of it."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from knnprompt_jax.report import accuracies, intervals, names, published, results, tables
from knnprompt_jax.report.results import Score
from knnprompt_jax.report.tables import Cell, Table

_CAPTION = "kNN Prompting's accuracy minus each other method's in points, mean ± sample standard deviation over seeds."


def build(name: str, ours: pd.DataFrame, axes: Sequence[str]) -> Table:
    """Return kNN Prompting's accuracy minus each other method's on the same rows with the same seeds.

    A method that uses only demonstrations is compared at every m, and one that trains a model of its own with every
    model. The average is over `_averaged` tasks.
    """
    by_model = results.by_model(results.of_predictions(ours))
    ours = pd.concat([runs.assign(model=model) for model, runs in by_model.items()], ignore_index=True)
    own_axes = [axis for axis in axes if axis not in ("method", "m")]
    cells: dict[tuple, Cell] = {}
    for key, pairs in results.groups(_pairs(ours, own_axes), [*own_axes, "m", "method_other"]).items():
        for task, group in pairs.groupby("task"):
            cells[*key, task] = _cell([group])
        complete = _complete(pairs, _averaged(ours[(ours.method == "knn") & (ours.model == pairs.model.iloc[0])]))
        if complete:
            cells[*key, published.AVERAGE] = _cell(complete)
    columns = accuracies.columns(names.ordered("task", ours.task))
    table = tables.build(f"{name}_paired", _CAPTION, [*own_axes, "m", "method"], columns, cells)
    findings = _findings(cells, ours) if own_axes == ["model"] else ()
    return dataclasses.replace(table, headers=(*table.headers[:-1], "against"), findings=tuple(findings))


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


def _cell(groups: Sequence[pd.DataFrame]) -> Cell:
    """Return the mean difference over tasks, given the pairs of each task, marked if its interval excludes zero."""
    by_seed = pd.concat(groups).groupby("seed", sort=False).points.mean() if len(groups) > 1 else groups[0].points
    interval = intervals.bootstrap([np.stack(list(group.better)) for group in groups])
    return Cell(Score.of(by_seed), marks=tables.CLEAR if interval.sign else "")


def _findings(cells: Mapping[tuple, Cell], ours: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """Yield a row per model at its largest m: what was run, and the methods that it is ahead of, behind, or neither.

    The numbers are mean differences over tasks in points.
    """
    averages = {key: cell for key, cell in cells.items() if key[-1] == published.AVERAGE}
    for model in names.ordered("model", {key[0] for key in averages}):
        m = max(key[1] for key in averages if key[0] == model)
        kinds: dict[str, list[str]] = {"ahead": [], "behind": [], "unclear": []}
        for method in names.ordered("method", {key[2] for key in averages if key[:2] == (model, m)}):
            cell = averages[model, m, method, published.AVERAGE]
            lead = cell.ours.mean if cell.ours else 0.0
            kind = ("ahead" if lead > 0 else "behind") if cell.marks else "unclear"
            kinds[kind].append(f"{names.method(method)} {tables.signed(lead)}")
        runs = ours[(ours.method == "knn") & (ours.model == model) & (ours.m == m)]
        noun = "demonstration" if max(runs.demo_shots) == 1 else "demonstrations"
        tasks = _averaged(runs)
        title = [names.model(model), f"m = {m}", f"{names.span(runs.demo_shots)} {noun} per class"]
        title += [*names.directions(runs.record), names.task(tasks[0]) if len(tasks) == 1 else f"{len(tasks)} tasks"]
        yield "; ".join(title), *("; ".join(kind) or "–" for kind in kinds.values())


def _averaged(runs: pd.DataFrame) -> list[str]:
    """Return the tasks with several seeds, or all: a task with one seed would leave a single seed to compare."""
    num_seeds = runs.groupby("task").seed.nunique()
    return list(num_seeds[num_seeds > 1].index) or list(num_seeds.index)
