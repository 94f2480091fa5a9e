"""The facts of any records, and their section: a table of methods against tasks for each number of train rows."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from knnprompt_jax import errors
from knnprompt_jax.report import names, page, results, tables
from knnprompt_jax.report.results import Record, Score
from knnprompt_jax.report.tables import Table

_OTHER_ROWS = (
    "at equal seeds, methods without anchors see other rows than kNN Prompting: it draws its demonstrations first, then its "
    "anchors from the other rows, as the released code does; the paper says that all use T = D ∪ A"
)


def facts(ours: pd.DataFrame) -> dict[str, str]:
    """Return what was run, by title; nothing if no record is there."""
    if ours.empty:
        return {}
    places = {", ".join(f"{key} {value}" for key, value in record.environment.items()) for record in ours.record}
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
        "Run on": "; ".join(sorted(places)),
    }
    return {title: text for title, text in texts.items() if text}


def section(records: Sequence[Record]) -> page.Section:
    """Return the section of any records; raise UserError like `by_shots`."""
    found = facts(results.frame(records))
    return page.Section("overview", "Accuracy by train rows per class", "", found, tables=tuple(by_shots(records)))


def by_shots(records: Sequence[Record]) -> Iterator[Table]:
    """Yield a table of methods against tasks for each number of shots: mean ± sample standard deviation over seeds, in %.

    If a method ran with several numbers of demonstrations on a task, each number has a row.
    Methods that kept their best candidate also have their candidates' mean and worst. A second table has macro F1 for tasks
    with classes of uneven size. A cell with fewer seeds than the table's maximum gives their number in brackets.

    Raises:
      UserError: two records of a cell have the same seed, or differ in another setting than the seed; or methods were
        measured on different test rows.
    """
    frame = results.frame(records)
    results.check(frame, ["method", "task", "shots"], apart=["demo_shots"])
    for (method, _), group in results.groups(frame, ["method", "shots"]).items():
        if group.groupby("task").demo_shots.nunique().max() > 1:
            frame.loc[group.index, "method"] = [
                f"{names.method(method)}, {count} demonstration{'s' * (count != 1)} per class"
                for count in group.demo_shots
            ]
    for (task, shots), group in results.groups(frame, ["task", "shots"]).items():
        if group.true.nunique() > 1:
            files = ", ".join(group.drop_duplicates("true").file_name)
            raise errors.UserError(
                f"records of {task} with m = {shots} have different test rows: {files}; move some elsewhere"
            )
    share, uneven = ([getattr(record, name) for record in frame.record] for name in ("most_common", "is_uneven"))
    frame = frame.assign(value=frame.accuracy, share=share, uneven=uneven)
    tried, candidates = frame[frame.candidates.map(len) > 0], []
    for title, choose in (("mean", np.mean), ("worst", min)):
        rows = zip(tried.method, tried.candidates, strict=True)
        method = [f"{names.method(name)}, {title} of {len(values)}" for name, values in rows]
        candidates.append(tried.assign(method=method, value=100 * tried.candidates.map(choose)))
    for (shots,), group in sorted(results.groups(pd.concat([frame, *candidates]), ["shots"]).items()):
        first = group.drop_duplicates("task")
        most_common = {
            (names.MOST_COMMON, task): Score(100 * most) for task, most in zip(first.task, first.share, strict=True)
        }
        yield _table(f"Accuracy in %, {shots} train rows per class", group, most_common)
        if len(uneven := frame[frame.uneven & (frame.shots == shots)]):
            macro_f1 = [100 * record.macro_f1 for record in uneven.record]
            yield _table("Macro F1 in % of tasks with classes of uneven size", uneven.assign(value=macro_f1), {})


def _table(caption: str, frame: pd.DataFrame, scores: dict[tuple, Score]) -> Table:
    """Return the table of these scores and of each method's."""
    groups = results.groups(frame, ["method", "task"])
    seeds = max(map(len, groups.values()))
    for key, runs in groups.items():
        scores[key] = dataclasses.replace(Score.of(runs.value), note=f"{len(runs)}" if len(runs) < seeds else "")
    columns = {task: names.task(task) for task in names.ordered("task", frame.task)}
    cells = {key: tables.Cell(score) for key, score in scores.items()}
    return tables.build("by_shots", f"{caption}, {seeds} seed{'' if seeds == 1 else 's'}", ("method",), columns, cells)
