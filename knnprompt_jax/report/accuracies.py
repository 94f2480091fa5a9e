"""Tables of accuracies beside the paper's, and of paired differences between kNN Prompting and each other method."""

import dataclasses
import statistics
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd
from scipy import stats

from knnprompt_jax.report import names, published, results, tables
from knnprompt_jax.report.results import Score
from knnprompt_jax.report.tables import Cell, Table

_TRUNCATED = 0.05  # The paper's limit on the share of truncated prompts, by which it chooses M_T.
SIGNIFICANT = (
    "p < 0.05 (t-test of the pairs over seeds; with one seed McNemar's exact test over rows); expect 1 in 20 by chance"
)
_LEVEL = 0.05
OVER_THESE = "the paper's average is over these tasks, from its rounded numbers; it prints the average of more tasks"
Marks = Callable[[pd.DataFrame], tuple[str, ...]]


def build(
    name: str,
    ours: pd.DataFrame,
    axes: Sequence[str],
    caption: str,
    paper: pd.DataFrame,
    marks: Marks = lambda records: (),
) -> Table:
    """Return a row per place on the axes, a column per task and one for their average.

    Args:
      ours: the records, as `results.frame` returns them.
      paper: the paper's numbers on the same axes; places without a record are shown as well.
      marks: returns further marks of a cell from its records.
    """
    ours, axes = pd.concat([ours, results.with_best_template_per_seed(ours)]), axes_of(axes, ours, paper)
    ran = set(ours.task)
    tasks = names.ordered("task", {*ran, *paper.task} - {published.AVERAGE})
    measured, printed = results.groups(ours, axes), results.groups(paper, axes)
    by_task, printed_by_task = results.groups(ours, [*axes, "task"]), results.groups(paper, [*axes, "task"])
    no_records, no_numbers = ours[:0], paper[:0]
    cells: dict[tuple, dict[str, Cell]] = {}
    models_with_records = set(ours.model)
    places = names.ordered_places(axes, measured | printed)
    if "model" in axes:
        places.sort(key=lambda place: place[axes.index("model")] not in models_with_records)
    for place in places:
        cells[place] = {}
        for task in tasks:
            records = by_task.get((*place, task), no_records)
            cells[place][task] = _cell(records, printed_by_task.get((*place, task), no_numbers), marks)
        if len(tasks) > 1:
            records, numbers = measured.get(place, no_records), printed.get(place, no_numbers)
            cells[place][published.AVERAGE] = _average(records, numbers, ran, tasks)
    return tables.build(name, caption, axes, _columns(tasks), cells, [*_reference(cells), *seeds(name, paper)])


def _columns(tasks: Sequence[str]) -> dict[str, str]:
    """Return the titles of a column per task and, for several tasks, their average."""
    return {task: names.task(task) for task in (*tasks, *((published.AVERAGE,) if len(tasks) > 1 else ()))}


def axes_of(axes: Sequence[str], ours: pd.DataFrame, paper: pd.DataFrame) -> list[str]:
    """Return the axes, preceded by model and m if different models or numbers of shots would share a row."""

    def is_mixed(axis: str, frame: pd.DataFrame) -> bool:
        others = [other for other in (*axes, "task") if other != axis]
        return len(frame) > 0 and frame.groupby(others, dropna=False)[axis].nunique().max() > 1

    several_models = len(ours) > 0 and len(results.by_model(ours)) > 1
    columns = list(dict.fromkeys([*axes, "m", "task"]))
    both = pd.concat([each.reindex(columns=columns) for each in (ours, paper) if len(each)] or [ours])
    missing = {"model": several_models or is_mixed("model", paper), "m": is_mixed("m", both)}
    return [*(axis for axis, mixed in missing.items() if mixed and axis not in axes), *axes]


def cell_marks(records: pd.DataFrame) -> tuple[str, ...]:
    """Return the marks of truncated prompts and of results re-used from in-context learning."""
    truncated = records.truncated_prompts.sum() > _TRUNCATED * records.prompts.sum()
    reused = records.note.str.contains("re-?use").any()
    return (*((tables.TRUNCATED,) if truncated else ()), *((tables.REUSED,) if reused else ()))


def _cell(records: pd.DataFrame, numbers: pd.DataFrame, marks: Marks) -> Cell:
    ours = results.accuracy(records) if len(records) else None
    paper = numbers.score.iloc[0] if len(numbers) else None
    marked = (*cell_marks(records), *marks(records)) if ours else ()
    return Cell(ours, paper, _same_model(records, numbers), marked)


def _same_model(records: pd.DataFrame, numbers: pd.DataFrame) -> bool:
    """Return whether the paper has numbers here, and made them with the model of the records."""
    return len(numbers) > 0 and bool((records.model == numbers.model.iloc[0]).all())


def _average(records: pd.DataFrame, numbers: pd.DataFrame, ran: set[str], tasks: Sequence[str]) -> Cell:
    """Return the average over the tasks that were run, if the row has them all, beside the paper's average."""
    paper, over, mark = _printed_average(numbers, tasks)
    complete = len(records) > 0 and set(records.task) == ran
    fewer = complete and len(ran) < len(tasks)
    marks = (f"the average over the {len(ran)} of {len(tasks)} tasks that were run" if fewer else "", mark)
    ours, same = results.average(records) if complete else None, over == ran and _same_model(records, numbers)
    return Cell(ours, paper, same, tuple(filter(None, marks)), paper_digits=2)


def _printed_average(numbers: pd.DataFrame, tasks: Sequence[str]) -> tuple[Score | None, set[str], str]:
    """Return the paper's average over these tasks or, if it prints too few of them, over its own; the tasks; and a mark."""
    whole = numbers[numbers.task == published.AVERAGE]
    if whole.empty:
        return None, set(), ""
    score, printed_tasks = whole.score.iloc[0], set(whole.tasks.iloc[0])
    if printed_tasks == {*tasks}:
        return score, printed_tasks, ""
    means = [each.mean for each in numbers[numbers.task.isin(tasks)].score]
    if len(means) < len(tasks):
        return score, printed_tasks, f"the paper's average is over {len(printed_tasks)} tasks"
    return Score(statistics.fmean(means), None, score.count), {*tasks}, OVER_THESE


def _reference(cells: dict[tuple, dict[str, Cell]]) -> Iterator[str]:
    """Say whose the paper's numbers are if some of them are not comparable with ours."""
    by_task = [cell for row in cells.values() for column, cell in row.items() if column != published.AVERAGE]
    if any(cell.ours and cell.paper and not cell.comparable for cell in by_task):
        yield (
            f"The paper's numbers without a difference are {names.model(published.MODEL)}'s: a reference only, since the "
            "paper has no result with our model."
        )


def seeds(name: str, paper: pd.DataFrame) -> Iterator[str]:
    """Say how many seeds the paper's numbers rest on, what that is inferred from, and which other table they come from."""
    counted = paper.assign(count=[score.count for score in paper.score])
    for (table, count, basis), group in results.groups(counted, ("table", "count", "basis")).items():
        methods = ", ".join(map(names.method, group.method.unique()))
        text = f"The paper's {methods}: {count} seed{'' if count == 1 else 's'} ({basis})"
        yield text + ("." if table == name else f", from its table of {published.TITLES[table]}.")


def paired(name: str, ours: pd.DataFrame, axes: Sequence[str], marks: Marks = lambda records: ()) -> Table | None:
    """Return kNN Prompting's accuracy minus each other method's on the same rows with the same seeds; None without pairs.

    A method that uses only demonstrations is compared at every m.
    """
    if ours.empty:
        return None
    places = [axis for axis in axes if axis not in ("method", "m")]
    is_knn, tasks = ours.method == "knn", names.ordered("task", ours.task)
    pairs = ours[is_knn].merge(ours[~is_knn], on=[*places, "task", "seed"], suffixes=("", "_other"))
    pairs = pairs[
        ((pairs.m_other == results.FILLS_CONTEXT) | (pairs.m_other == pairs.m)) & (pairs.true == pairs.true_other)
    ]
    pairs = pairs.assign(difference=pairs.accuracy - pairs.accuracy_other)
    axes = [*places, "m", "method"]
    groups = results.groups(pairs, [*places, "m", "method_other"])
    cells: dict[tuple, dict[str, Cell]] = {}
    for place in names.ordered_places(axes, groups):
        by_task = {task: groups[place][groups[place].task == task] for task in tasks}
        cells[place] = {task: _difference(rows, marks) for task, rows in by_task.items() if len(rows)}
        by_seed = groups[place].groupby(["seed", "task"]).difference.last().unstack().reindex(columns=tasks)
        if len(tasks) > 1 and len(shared := by_seed.dropna()):
            cells[place][published.AVERAGE] = _significant_mean(shared.mean(axis=1))
    if not cells:
        return None
    caption = (
        "kNN Prompting's accuracy minus each other method's in points, mean ± sample standard deviation over seeds."
    )
    table = tables.build(f"{name}_paired", caption, axes, _columns(tasks), cells)
    return dataclasses.replace(table, headers=(*table.headers[:-1], "against"))


def _difference(pairs: pd.DataFrame, marks: Marks) -> Cell:
    cell = _significant_mean(pairs.difference, pairs)
    both = pd.DataFrame({"record": [*pairs.record, *pairs.record_other]})
    return dataclasses.replace(cell, marks=cell.marks + marks(both))


def _significant_mean(differences: pd.Series, pairs: pd.DataFrame | None = None) -> Cell:
    """Return the mean difference, marked if it is significant."""
    return Cell(Score.of(differences), marks=(SIGNIFICANT,) if p_value(differences, pairs) < _LEVEL else ())


def p_value(differences: Sequence[float] | pd.Series, pairs: pd.DataFrame | None = None) -> float:
    """Return the p-value of equal accuracies: a t-test over seeds or, with one seed, McNemar's exact test over its rows.

    Returns 1 if neither test applies.
    """
    if len(differences) > 1:
        equal = np.ptp(np.asarray(differences)) < 1e-9
        return 1.0 if equal else float(stats.ttest_1samp(differences, 0.0).pvalue)
    if pairs is None:
        return 1.0
    pair = pairs.iloc[0]
    ours, theirs = (np.array(predicted) == np.array(pair.true) for predicted in (pair.predicted, pair.predicted_other))
    better, worse = int((ours & ~theirs).sum()), int((theirs & ~ours).sum())
    return float(stats.binomtest(better, better + worse).pvalue) if better + worse else 1.0
