"""The facts of any records, and their section: a table of methods against tasks for each number of train rows."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd

from knnprompt_jax.report import names, page, results, tables
from knnprompt_jax.report.results import Record, Score
from knnprompt_jax.report.tables import Table

NAME = "overview"


def facts(ours: pd.DataFrame) -> dict[str, str]:
    """Return what was run, by title; nothing without records."""
    if ours.empty:
        return {}
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
    return page.Section(NAME, "Accuracy by train rows per class", "", found, tables=tuple(by_shots(records)))


def by_shots(records: Sequence[Record]) -> Iterator[Table]:
    """Yield a table of methods against tasks for each number of shots: mean ± sample standard deviation over seeds.

    If a method ran with several numbers of demonstrations on a task, each number has a row. Methods that chose their
    best candidate also have their candidates' mean and worst. A second table has macro F1 for tasks with classes of
    uneven size.

    Raises:
        UserError: two records of a cell have the same seed, or differ in another setting than the seed; or methods
            were measured on different test rows.
    """
    frame = results.frame(records)
    results.check(frame, ["method", "task", "shots"], varying=("demo_shots", "seed"))
    results.check_test_rows(frame, ["task", "shots"])
    frame = _with_demonstrations_in_names(frame)
    for (shots,), runs in sorted(results.groups(frame, ["shots"]).items()):
        first = runs.drop_duplicates("task")
        shares = [100 * record.most_common for record in first.record]
        most_common = first.assign(method=names.MOST_COMMON, accuracy=shares)
        candidates = [_candidates(runs, "mean", np.mean), _candidates(runs, "worst", min)]
        shown = pd.concat([runs, *candidates, most_common])
        yield _table(f"accuracy_{shots}", f"Accuracy in %, {shots} train rows per class", shown)
        uneven = runs[[record.is_uneven for record in runs.record]]
        if len(uneven):
            macro_f1 = uneven.assign(accuracy=[100 * record.macro_f1 for record in uneven.record])
            yield _table(f"macro_f1_{shots}", "Macro F1 in % of tasks with classes of uneven size", macro_f1)


def _with_demonstrations_in_names(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with the number of demonstrations in the method's name where a method has several on a task."""
    frame = frame.copy()
    for (method, _), group in results.groups(frame, ["method", "shots"]).items():
        if group.groupby("task").demo_shots.nunique().max() > 1:
            demonstrations = [names.counted(count, "demonstration") for count in group.demo_shots]
            frame.loc[group.index, "method"] = [f"{names.method(method)}, {each} per class" for each in demonstrations]
    return frame


def _candidates(frame: pd.DataFrame, title: str, choose: Callable[[Sequence[float]], float]) -> pd.DataFrame:
    """Return the rows of methods that chose their best candidate, with another of its candidates' accuracies."""
    rows = frame[frame.candidates.map(len) > 0]
    pairs = zip(rows.method, rows.candidates, strict=True)
    method = [f"{names.method(name)}, {title} of {len(candidates)}" for name, candidates in pairs]
    return rows.assign(method=method, accuracy=100 * rows.candidates.map(choose))


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
