"""The facts of any records, and their section: a table of methods against tasks for each number of train rows."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd

from knnprompt_jax.report import names, page, results, tables
from knnprompt_jax.report.results import Record, Score
from knnprompt_jax.report.tables import Table

NAME = "overview"
_OTHER_ROWS = (
    "at equal seeds, methods without anchors see other rows than kNN Prompting: it draws its demonstrations first, then "
    "its anchors from the other rows, as the released code does; the paper says that all use T = D ∪ A"
)


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
        "Few-shot draws": _OTHER_ROWS if (ours.regime == results.FEW_SHOT).any() else "",
        "Run on": "; ".join(sorted(environments)),
    }
    return {title: text for title, text in texts.items() if text}


def section(records: Sequence[Record]) -> page.Section:
    """Return the section of any records; raise UserError like `by_shots`."""
    found = facts(results.frame(records))
    return page.Section(NAME, "Accuracy by train rows per class", "", found, tables=tuple(by_shots(records)))


def by_shots(records: Sequence[Record]) -> Iterator[Table]:
    """Yield a table of methods against tasks for each number of shots: mean ± sample standard deviation over seeds.

    If a method ran with several numbers of demonstrations on a task, each number has a row. Methods that kept their
    best candidate also have their candidates' mean and worst. A second table has macro F1 for tasks with classes of
    uneven size. A cell with fewer seeds than the table's maximum gives their number in brackets.

    Raises:
        UserError: two records of a cell have the same seed, or differ in another setting than the seed; or methods
            were measured on different test rows.
    """
    frame = results.frame(records)
    results.check(frame, ["method", "task", "shots"], apart=["demo_shots"])
    results.check_test_rows(frame, ["task", "shots"])
    frame = _with_demonstrations_in_names(frame)
    frame = frame.assign(
        value=frame.accuracy,
        most_common=[100 * record.most_common for record in frame.record],
        is_uneven=[record.is_uneven for record in frame.record],
    )
    with_candidates = pd.concat([frame, _candidates(frame, "mean", np.mean), _candidates(frame, "worst", min)])
    for (shots,), group in sorted(results.groups(with_candidates, ["shots"]).items()):
        rows = group.drop_duplicates("task").itertuples()
        most_common = {(names.MOST_COMMON, row.task): Score(row.most_common) for row in rows}
        yield _table(f"accuracy_{shots}", f"Accuracy in %, {shots} train rows per class", group, most_common)
        uneven = frame[frame.is_uneven & (frame.shots == shots)]
        if len(uneven):
            caption = "Macro F1 in % of tasks with classes of uneven size"
            macro_f1 = [100 * record.macro_f1 for record in uneven.record]
            yield _table(f"macro_f1_{shots}", caption, uneven.assign(value=macro_f1), {})


def _with_demonstrations_in_names(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with the number of demonstrations in the method's name where a method has several on a task."""
    frame = frame.copy()
    for (method, _), group in results.groups(frame, ["method", "shots"]).items():
        if group.groupby("task").demo_shots.nunique().max() > 1:
            frame.loc[group.index, "method"] = [
                f"{names.method(method)}, {names.counted(count, 'demonstration')} per class"
                for count in group.demo_shots
            ]
    return frame


def _candidates(frame: pd.DataFrame, title: str, choose: Callable[[Sequence[float]], float]) -> pd.DataFrame:
    """Return the rows of methods that kept their best candidate, with another of its candidates' accuracies."""
    rows = frame[frame.candidates.map(len) > 0]
    method = [
        f"{names.method(name)}, {title} of {len(candidates)}"
        for name, candidates in zip(rows.method, rows.candidates, strict=True)
    ]
    return rows.assign(method=method, value=100 * rows.candidates.map(choose))


def _table(name: str, caption: str, frame: pd.DataFrame, scores: dict[tuple, Score]) -> Table:
    """Return the table of these scores and of each method's."""
    groups = results.groups(frame, ["method", "task"])
    num_seeds = max(map(len, groups.values()))
    for key, runs in groups.items():
        note = str(len(runs)) if len(runs) < num_seeds else ""
        scores[key] = dataclasses.replace(Score.of(runs.value), note=note)
    columns = {task: names.task(task) for task in names.ordered("task", frame.task)}
    cells = {key: tables.Cell(score) for key, score in scores.items()}
    return tables.build(name, f"{caption}, {names.counted(num_seeds, 'seed')}", ("method",), columns, cells)
