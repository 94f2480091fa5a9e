"""Tables of accuracies by task beside the paper's."""

import statistics
from collections.abc import Collection, Iterator, Sequence

import pandas as pd

from knnprompt_jax.report import names, published, results, tables
from knnprompt_jax.report.results import Score
from knnprompt_jax.report.tables import Cell, Table

_TRUNCATED = 0.05  # The paper's limit on the share of truncated prompts, by which it chooses M_T.
_AVERAGES = "Averages are over the tasks run; in rows without runs of ours, they are as printed."


def build(name: str, caption: str, ours: pd.DataFrame, paper: pd.DataFrame, axes: Sequence[str]) -> Table:
    """Return a row per key, which is a value on every axis; a column per task and one for the average over tasks.

    Args:
        name: the name of the table.
        caption: its caption.
        ours: the records, as `results.frame` returns them.
        paper: the paper's numbers on the same axes; keys without a record are shown as well.
        axes: the axes of the rows.
    """
    ours = pd.concat([ours, results.with_best_template_per_seed(ours)])
    by_task = paper[paper.task != published.AVERAGE]
    cells = tables.pivot(ours, by_task, (*axes, "task"), results.accuracy, cell_marks)
    tasks = names.ordered("task", {key[-1] for key in cells})
    tasks_of_model = {model: set(runs.task) for (model,), runs in results.groups(ours, ["model"]).items()}
    runs_of = results.groups(ours, axes)
    numbers_of = results.groups(paper, axes)
    for key in runs_of | numbers_of:
        runs = runs_of.get(key, ours[:0])
        tasks_of_models = set().union(*(tasks_of_model[model] for model in runs.model))
        cells[*key, published.AVERAGE] = _average(runs, numbers_of.get(key, paper[:0]), tasks_of_models)
    notes = [*seed_notes(paper), *([_AVERAGES] if len(paper) and len(ours) else [])]
    return tables.build(name, caption, axes, columns(tasks), cells, notes)


def _average(runs: pd.DataFrame, numbers: pd.DataFrame, tasks: Collection[str]) -> Cell:
    """Return the averages of a row over the same tasks; ours only if the row has all `tasks` that its model ran.

    The paper's average is the printed one, or is computed from its rounded numbers if we ran other tasks.
    """
    ours = results.average(runs) if tasks and set(runs.task) == tasks else None
    printed = numbers[numbers.task == published.AVERAGE]
    if len(printed) and (runs.empty or set(printed.tasks.iloc[0]) == set(runs.task)):
        return Cell(ours, printed.score.iloc[0], paper_digits=2)
    scores = list(numbers.score[numbers.task.isin(runs.task)])
    if scores and len(scores) == runs.task.nunique():
        return Cell(ours, Score(statistics.fmean(score.mean for score in scores), None, scores[0].count))
    return Cell(ours)


def columns(tasks: Sequence[str]) -> dict[str, str]:
    """Return the titles of a column per task and, for several tasks, of their average."""
    titles = {task: names.task(task) for task in tasks}
    return titles | {published.AVERAGE: published.AVERAGE} if len(tasks) > 1 else titles


def cell_marks(runs: pd.DataFrame) -> str:
    """Return the marks of truncated prompts and of results re-used from in-context learning."""
    is_truncated = runs.truncated_prompts.sum() > _TRUNCATED * runs.prompts.sum()
    is_reused = runs.note.str.contains("re-?use").any()
    return tables.TRUNCATED * bool(is_truncated) + tables.REUSED * bool(is_reused)


def seed_notes(paper: pd.DataFrame) -> Iterator[str]:
    """Yield how many seeds the paper's numbers rest on, and what that is inferred from."""
    with_counts = paper.assign(count=[score.count for score in paper.score])
    for (count, basis), group in results.groups(with_counts, ("count", "basis")).items():
        methods = " / ".join(map(names.method, group.method.unique()))
        yield f"The paper's numbers for {methods}: {names.counted(count, 'seed')} ({basis})."
