"""Tables of accuracies by task: beside the paper's, and of methods for any records."""

import dataclasses
from collections.abc import Iterator, Sequence

import pandas as pd

from knnprompt_jax.report import names, page, published, results, tables
from knnprompt_jax.report.results import Record, Score
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
    by_task = paper[paper.task != published.AVERAGE]
    cells = tables.pivot(ours, by_task, (*axes, "task"), results.accuracy, cell_marks)
    tasks = names.ordered("task", {key[-1] for key in cells})
    tasks_of_model = {model: set(runs.task) for (model,), runs in results.groups(ours, ["model"]).items()}
    runs_of = results.groups(ours, axes)
    numbers_of = results.groups(paper, axes)
    for key in runs_of | numbers_of:
        runs = runs_of.get(key, ours[:0])
        if set(runs.task) == set().union(*(tasks_of_model[model] for model in runs.model)):
            cells[*key, published.AVERAGE] = _average(runs, numbers_of.get(key, paper[:0]))
    notes = [_AVERAGES] if len(paper) and len(ours) else []
    columns = {task: names.task(task) for task in tasks}
    if len(tasks) > 1:
        columns[published.AVERAGE] = published.AVERAGE
    return tables.build(name, caption, axes, columns, cells, notes)


def _average(runs: pd.DataFrame, numbers: pd.DataFrame) -> Cell:
    """Return the average of a row, and the paper's if it is over the same tasks or nothing was run."""
    ours = results.average(runs) if len(runs) else None
    printed = numbers[numbers.task == published.AVERAGE]
    if len(printed) and (runs.empty or set(printed.tasks.iloc[0]) == set(runs.task)):
        return Cell(ours, printed.score.iloc[0], paper_digits=2)
    return Cell(ours)


def cell_marks(runs: pd.DataFrame) -> str:
    """Return the marks of truncated prompts and of results re-used from in-context learning."""
    is_truncated = runs.truncated_prompts.sum() > _TRUNCATED * runs.prompts.sum()
    is_reused = runs.note.str.contains("re-?use").any()
    return tables.TRUNCATED * bool(is_truncated) + tables.REUSED * bool(is_reused)


def facts(ours: pd.DataFrame) -> dict[str, str]:
    """Return what was run, by title."""
    environments = {", ".join(f"{key} {value}" for key, value in each.environment.items()) for each in ours.record}
    texts = {
        "Records": f"{len(ours):,}",
        "Model": ", ".join(map(names.model, names.ordered("model", ours.model))),
        "Tasks": ", ".join(map(names.task, names.ordered("task", ours.task))),
        "m": names.span(ours.shots[ours.m != results.FILLS_CONTEXT]) or "M_T",
        "Demonstrations per class": names.span(ours.demo_shots),
        "Seeds": names.span(ours.seed),
        "Test rows": f"{names.span(ours.true.map(len))} per task",
        "KL direction": ", ".join(names.directions(ours.record)),
        "Run on": "; ".join(sorted(environments)),
    }
    return {title: text for title, text in texts.items() if text}


def section(records: Sequence[Record]) -> page.Section:
    """Return the section of any records; raise UserError like `by_shots`."""
    found = facts(results.frame(records))
    return page.Section("overview", "Accuracy by train rows per class", "", found, tables=tuple(by_shots(records)))


def by_shots(records: Sequence[Record]) -> Iterator[Table]:
    """Yield a table of methods against tasks for each number of shots: mean ± sample standard deviation over seeds.

    Raises:
        UserError: two records of a cell have the same seed, or differ in another setting than the seed; or methods
            were measured on different test rows.
    """
    frame = results.frame(records)
    results.check(frame, ["method", "task", "shots"])
    results.check_test_rows(frame, ["task", "shots"])
    for (shots,), runs in sorted(results.groups(frame, ["shots"]).items()):
        first = runs.drop_duplicates("task")
        shares = [100 * record.most_common for record in first.record]
        most_common = first.assign(method=names.MOST_COMMON, accuracy=shares)
        caption = f"Accuracy in %, {shots} train rows per class"
        yield _table(f"accuracy_{shots}", caption, pd.concat([runs, most_common]))


def _table(name: str, caption: str, frame: pd.DataFrame) -> Table:
    """Return the table of these accuracies; a score of fewer seeds than others says how many."""
    num_seeds = max(map(len, results.groups(frame, ["method", "task"]).values()))

    def score(runs: pd.DataFrame) -> Score:
        is_run = runs.method.iloc[0] != names.MOST_COMMON
        note = str(len(runs)) if is_run and len(runs) < num_seeds else ""
        return dataclasses.replace(Score.of(runs.accuracy), note=note)

    cells = tables.pivot(frame, frame[:0], ("method", "task"), score)
    columns = {task: names.task(task) for task in names.ordered("task", frame.task)}
    return tables.build(name, f"{caption}, {names.counted(num_seeds, 'seed')}", ("method",), columns, cells)
