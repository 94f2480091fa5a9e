"""Accuracies: a row for each place on the experiment's axes, ours or the paper's, a column for each task, and their average."""

import dataclasses
import statistics
from collections.abc import Callable, Iterator, Sequence

from knnprompt_jax.report import names, published, scores, tables, templates
from knnprompt_jax.report.published import Printed
from knnprompt_jax.report.scores import Record
from knnprompt_jax.report.tables import Cell, Table, TableRow

_TRUNCATED = 0.05  # The paper's rule for M_T: no more prompts than that are cut.
_REUSED = ("re-use", "reuse")
OVER_THESE = "the paper's average is over these tasks, from its rounded numbers; it prints that of more tasks"
Marks = Callable[[Sequence[Record]], tuple[str, ...]]


def build(
    name: str,
    records: Sequence[Record],
    axes: Sequence[str],
    caption: str,
    paper: Sequence[Printed] = (),
    marks: Marks = lambda records: (),
) -> Table:
    """The table of records and of all that the paper prints of the same, run or not; `marks` gives a cell's further marks."""
    axes, records = axes_of(axes, records, paper), [*records, *templates.of_each_seed(records)]
    ran, printed = ({each.task for each in some} - {published.AVERAGE} for some in (records, paper))
    tasks = names.ordered("task", [*ran, *printed])
    ours, theirs = scores.pool(records, *axes), scores.pool(paper, *axes)
    rows = []
    for place in _ours_first(axes, names.ordered_places(axes, {**ours, **theirs}), records):
        cells = _cells(ours.get(place, []), {number.task: number for number in theirs.get(place, [])}, tasks, marks)
        if len(tasks) > 1:
            cells.append(_average(ours.get(place, []), theirs.get(place, []), ran, tasks))
        rows.append(TableRow(tuple(map(names.text, axes, place)), tuple(cells)))
    return Table(
        name=name,
        caption=caption,
        headers=tuple(names.HEADERS.get(axis, axis) for axis in axes),
        columns=(*map(names.task, tasks), *([published.AVERAGE] if len(tasks) > 1 else [])),
        rows=tuple(rows),
        notes=tuple([*_reference(rows), *seeds(name, paper)]),
    )


def _ours_first(axes: Sequence[str], places: Sequence[tuple], records: Sequence[Record]) -> list[tuple]:
    """The places, where models are told apart those of the models that ran before the others."""
    ran = {record.model for record in records}
    return sorted(places, key=lambda place: "model" in axes and place[axes.index("model")] not in ran)


def axes_of(axes: Sequence[str], records: Sequence[Record], paper: Sequence[Printed]) -> tuple[str, ...]:
    """The axes, before them model and m where several would stand at one place; a reference's model is none of ours."""
    several = len(scores.by_model(records)) > 1 if records else False
    missing = {"model": several or _mixed("model", axes, paper), "m": _mixed("m", axes, [*records, *paper])}
    return (*(axis for axis, mixed in missing.items() if mixed and axis not in axes), *axes)


def _mixed(axis: str, axes: Sequence[str], numbers: Sequence[Record | Printed]) -> bool:
    """Whether numbers of a task that differ on one axis share their place on the others."""
    groups = scores.pool(numbers, *(other for other in axes if other != axis), "task").values()
    return any(len({scores.axis(number, axis) for number in group}) > 1 for group in groups)


def of_cell(records: Sequence[Record]) -> tuple[str, ...]:
    """The marks of a cell: prompts cut to the context, in-context learning re-used."""
    cut = sum(record.truncated_prompts for record in records) > _TRUNCATED * sum(record.prompts for record in records)
    reused = any(word in record.note for record in records for word in _REUSED)
    return (*((tables.TRUNCATED,) if cut else ()), *((tables.REUSED,) if reused else ()))


def _cells(records: Sequence[Record], paper: dict[str, Printed], tasks: Sequence[str], marks: Marks) -> list[Cell]:
    cells, by_task = [], scores.pool(records, "task")
    for task in tasks:
        measured, printed = by_task.get((task,), []), paper.get(task)
        cells.append(
            Cell(
                scores.accuracy(measured) if measured else None,
                printed.score if printed else None,
                comparable(measured, printed),
                (*of_cell(measured), *marks(measured)) if measured else (),
            )
        )
    return cells


def _average(records: Sequence[Record], paper: Sequence[Printed], ran: set[str], tasks: Sequence[str]) -> Cell:
    """Over the tasks of all our records, where this row has them all, beside the paper's."""
    printed, told = _printed_average(paper, tasks)
    complete = bool(records) and {record.task for record in records} == ran
    same = printed is not None and set(printed.tasks) == ran
    fewer = complete and len(ran) < len(tasks)
    over = f"the average over the {len(ran)} of {len(tasks)} tasks that were run" if fewer else ""
    return Cell(
        scores.average(records) if complete else None,
        printed.score if printed else None,
        same and comparable(records, printed),
        tuple(filter(None, (over, told))),
        paper_digits=2,
    )


def _printed_average(paper: Sequence[Printed], tasks: Sequence[str]) -> tuple[Printed | None, str]:
    """The paper's average over these tasks, as it is printed or of its numbers, or that of other tasks; and its mark."""
    whole = next((number for number in paper if number.task == published.AVERAGE), None)
    if whole is None or set(whole.tasks) == {*tasks}:
        return whole, ""
    on_tasks = [number.score for number in paper if number.task in tasks]
    if len(on_tasks) < len(tasks):
        return whole, f"the paper's average is over {len(whole.tasks)} tasks"
    score = scores.Score(statistics.fmean(score.mean for score in on_tasks), None, whole.score.count)
    return dataclasses.replace(whole, tasks=tuple(tasks), score=score), OVER_THESE


def comparable(records: Sequence[Record], printed: Printed | None) -> bool:
    """Whether a number of the paper's was made with the records' model."""
    return printed is not None and all(record.model == printed.model for record in records)


def _reference(rows: Sequence[TableRow]) -> Iterator[str]:
    """Whose the paper's numbers are, where some of them are no counterparts of ours."""
    if any(cell.ours and cell.paper and not cell.comparable for row in rows for cell in row.cells[:-1]):
        yield (
            f"The paper's numbers without a difference are {names.model(published.MODEL)}'s: a reference only, since the "
            "paper has no result with our model."
        )


def seeds(name: str, paper: Sequence[Printed]) -> Iterator[str]:
    """How many seeds the paper's numbers rest on, from what that is inferred, and from which other table they are."""
    groups: dict[tuple, dict[str, None]] = {}
    for number in paper:
        groups.setdefault((number.table, number.score.count, number.basis), {})[names.method(number.method)] = None
    for (table, count, basis), methods in groups.items():
        told = f"The paper's {', '.join(methods)}: {count} seed{'' if count == 1 else 's'} ({basis})"
        yield told + ("." if table == name else f", from its table of {published.TITLES[table]}.")
