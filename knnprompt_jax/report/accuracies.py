"""Tables of accuracies beside the paper's."""

import dataclasses
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence

import pandas as pd

from knnprompt_jax.report import names, published, results, tables
from knnprompt_jax.report.results import Score
from knnprompt_jax.report.tables import Cell, Table

_TRUNCATED = 0.05  # The paper's limit on the share of truncated prompts, by which it chooses M_T.
_OWN_AVERAGE = "own_average"  # The column of averages over the tasks that were run, where the paper's are over others.


def build(name: str, ours: pd.DataFrame, axes: Sequence[str], caption: str, paper: pd.DataFrame) -> Table:
    """Return a row per key, which is a value on every axis; a column per task and one for the average over tasks.

    Args:
        ours: the records, as `results.frame` returns them.
        paper: the paper's numbers on the same axes; keys without a record are shown as well.
    """
    ours = pd.concat([ours, results.with_best_template_per_seed(ours)])
    axes = axes_of(axes, ours, paper)
    tasks = names.ordered("task", {*ours.task, *paper.task} - {published.AVERAGE})
    tasks.sort(key=lambda task: task not in {*ours.task})  # Tasks with records come first.
    tasks_of_model = {model: set(runs.task) for (model,), runs in results.groups(ours, ["model"]).items()}
    runs_of = results.groups(ours, axes)
    numbers_of = results.groups(paper, axes)
    keys = names.ordered_keys(axes, runs_of | numbers_of)
    if "model" in axes:  # Models with records come first.
        position = axes.index("model")
        keys.sort(key=lambda key: key[position] not in tasks_of_model)
    cells: dict[tuple, Cell] = {}
    for key in keys:
        runs = runs_of.get(key, ours[:0])
        numbers = numbers_of.get(key, paper[:0])
        row = _task_cells(runs, numbers) | _averages(runs, numbers, tasks, tasks_of_model)
        cells |= {(*key, column): cell for column, cell in row.items()}
    return tables.build(name, caption, axes, columns(tasks), cells, keys, _notes(cells, tasks, paper))


def _task_cells(runs: pd.DataFrame, numbers: pd.DataFrame) -> dict[str, Cell]:
    """Return the cell of each task in a row of the table, from its records and the paper's numbers."""
    scores = dict(zip(numbers.task, numbers.score, strict=True))
    scores.pop(published.AVERAGE, None)
    cells = {task: Cell(None, score) for task, score in scores.items()}
    for (task,), own in results.groups(runs, ["task"]).items():
        cells[task] = Cell(results.accuracy(own), scores.get(task), _same_model(runs, numbers), cell_marks(own))
    return cells


def _averages(
    runs: pd.DataFrame,
    numbers: pd.DataFrame,
    tasks: Sequence[str],
    tasks_of_model: Mapping[str, Collection[str]],
) -> dict[str, Cell]:
    """Return the averages in a row of the table by their columns; a cell has both averages over the same tasks.

    The first column has the paper's average as printed, or the average over all tasks of the table. The second column
    has the averages over the tasks that were run, if these are others; the paper's is computed from its rounded
    numbers. Our average is shown only if the row has all tasks that its model ran.
    """
    own = set(runs.task)
    is_complete = len(runs) > 0 and all(own == tasks_of_model[model] for model in runs.model)
    ours = results.average(runs) if is_complete else None
    seeds = shared_seeds(ours.count, runs) if ours and ours.count > 1 else ()
    printed = numbers[numbers.task == published.AVERAGE]
    paper = printed.score.iloc[0] if len(printed) else None
    averaged = set(printed.tasks.iloc[0]) if len(printed) else {*tasks}
    same_model = _same_model(runs, numbers)
    cells = {}
    if paper or (ours and own == averaged):
        marks = (f"the average over {names.counted(len(averaged), 'task')}",) if averaged != {*tasks} else ()
        shown = ours if own == averaged else None
        marks = (*marks, *(seeds if shown else ()))
        cells[published.AVERAGE] = Cell(shown, paper, same_model, marks, paper_digits=2)
    if ours and own != averaged and len(own) > 1:
        scores = list(numbers.score[numbers.task.isin(own)])
        theirs = None
        if len(scores) == len(own):
            theirs = Score(statistics.fmean(score.mean for score in scores), None, scores[0].count)
        noted = dataclasses.replace(ours, note=names.counted(len(own), "task"))
        cells[_OWN_AVERAGE] = Cell(noted, theirs, same_model, seeds)
    return cells


def shared_seeds(count: int, runs: pd.DataFrame) -> tuple[str, ...]:
    """Return the mark of an average over `count` seeds if one of its tasks has more."""
    has_more = runs.groupby("task").seed.nunique().max() > count
    return (f"the average over the {names.counted(count, 'seed')} that all its tasks have",) if has_more else ()


def _same_model(runs: pd.DataFrame, numbers: pd.DataFrame) -> bool:
    return len(runs) > 0 and set(runs.model) == set(numbers.model)


def _notes(cells: Mapping[tuple, Cell], tasks: Sequence[str], paper: pd.DataFrame) -> list[str]:
    """Return the texts below the table about the paper's numbers."""
    notes = list(seed_notes(paper))
    listed = [cell for (*_, column), cell in cells.items() if column in tasks]
    if any(cell.ours and cell.paper and not cell.comparable for cell in listed):
        model = names.model(published.MODEL)
        reference = "a reference only, since the paper has no result with our model."
        notes.insert(0, f"The paper's numbers without a difference are {model}'s: {reference}")
    if any(cell.paper for (*_, column), cell in cells.items() if column == _OWN_AVERAGE):
        notes.append("The paper's average of the tasks run is that of its printed numbers.")
    if any(cell.paper and cell.paper.note == published.TRUNCATED for cell in cells.values()):
        notes.append("A number of the paper with (†) is of truncated prompts.")
    return notes


def columns(tasks: Sequence[str]) -> dict[str, str]:
    """Return the titles of a column per task and, for several tasks, of their averages."""
    titles = {task: names.task(task) for task in tasks}
    if len(tasks) > 1:
        titles |= {published.AVERAGE: published.AVERAGE, _OWN_AVERAGE: "average of the tasks run"}
    return titles


def axes_of(axes: Sequence[str], ours: pd.DataFrame, paper: pd.DataFrame) -> list[str]:
    """Return the axes, preceded by model, regime, method and m where records that differ in these would share a row."""

    def is_mixed(axis: str, frame: pd.DataFrame) -> bool:
        remaining = [column for column in (*axes, "task") if column != axis]
        return len(frame) > 0 and frame.groupby(remaining, dropna=False)[axis].nunique().max() > 1

    has_models = len(ours) > 0 and len(results.by_model(ours)) > 1
    shared = list(dict.fromkeys([*axes, "m", "task"]))
    both = pd.concat([frame.reindex(columns=shared) for frame in (ours, paper) if len(frame)] or [ours])
    required = {
        "model": has_models or is_mixed("model", paper),
        "regime": is_mixed("regime", ours),
        "method": is_mixed("method", ours),
        "m": is_mixed("m", both),
    }
    return [*(axis for axis in required if required[axis] and axis not in axes), *axes]


def cell_marks(records: pd.DataFrame) -> tuple[str, ...]:
    """Return the marks of truncated prompts and of results re-used from in-context learning."""
    marks = []
    if records.truncated_prompts.sum() > _TRUNCATED * records.prompts.sum():
        marks.append(tables.TRUNCATED)
    if records.note.str.contains("re-?use").any():
        marks.append(tables.REUSED)
    return tuple(marks)


def seed_notes(paper: pd.DataFrame) -> Iterator[str]:
    """Yield how many seeds the paper's numbers rest on, and what that is inferred from."""
    with_counts = paper.assign(count=[score.count for score in paper.score])
    for (count, basis), group in results.groups(with_counts, ("count", "basis")).items():
        methods = " / ".join(map(names.method, group.method.unique()))
        yield f"The paper's numbers for {methods}: {names.counted(count, 'seed')} ({basis})."
