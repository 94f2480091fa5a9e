"""Accuracies: a row for each place on the experiment's axes, a column for each task, and their average."""

from collections.abc import Sequence

from knnprompt_jax.report import names, published, scores, tables
from knnprompt_jax.report.scores import Record, Score
from knnprompt_jax.report.tables import Cell, Row, Table

_TRUNCATED = 0.05  # The paper's rule for M_T: no more prompts than that are cut.
_REUSED = ("re-use", "reuse")


def build(records: Sequence[Record], axes: Sequence[str], caption: str) -> Table:
    """The table of an experiment's records, with the paper's number in every cell for which it has one."""
    experiment = records[0].experiment
    if len(scores.by_model(records)) > 1 and "model" not in axes:
        axes = ("model", *axes)
    tasks = names.ordered("task", [record.task for record in records])
    groups = scores.pool(records, *axes)
    rows = tuple(
        Row(
            tuple(names.text(axis, value) for axis, value in zip(axes, place, strict=True)),
            _cells(groups[place], tasks),
        )
        for place in names.ordered_places(axes, groups)
    )
    return Table(
        name=experiment,
        caption=caption,
        headers=tuple(names.HEADERS.get(axis, axis) for axis in axes),
        columns=(*map(names.task, tasks), *(["average"] if len(tasks) > 1 else [])),
        rows=rows,
        reference=_reference(experiment, rows),
    )


def _cells(records: Sequence[Record], tasks: Sequence[str]) -> tuple[Cell, ...]:
    groups = scores.pool(records, "task")
    cells = [_cell(groups.get((task,), [])) for task in tasks]
    if len(tasks) == 1:
        return tuple(cells)
    paper = [cell.paper for cell in cells if cell.ours and cell.paper]
    complete = len(groups) == len(tasks)
    average = Cell(
        scores.average(records) if complete else None,
        published.average(paper) if len(paper) == len(tasks) else None,
        all(cell.comparable for cell in cells),
    )
    return (*cells, average)


def _cell(records: Sequence[Record]) -> Cell:
    if not records:
        return Cell()
    comparable, paper = counterpart(records[0])
    return Cell(scores.accuracy(records), paper, comparable, marks(records))


def counterpart(record: Record) -> tuple[bool, Score | None]:
    """The paper's number for a record's cell, and whether it was made with the same model, m and method."""
    place = {"shots": scores.axis(record, "m"), "method": record.method, "task": record.task}
    same = published.find(record.experiment, model=published.model_of(record.model), **place)
    return (True, same) if same else (False, published.reference(record.experiment, **place))


def marks(records: Sequence[Record]) -> str:
    """The marks of a cell: prompts cut to the context, in-context learning re-used."""
    cut = any(record.truncated_prompts > _TRUNCATED * record.prompts for record in records)
    reused = any(word in record.note for record in records for word in _REUSED)
    return tables.TRUNCATED * cut + tables.REUSED * reused


def _reference(experiment: str, rows: Sequence[Row]) -> str:
    """Whose the paper's numbers are, where some of them are no counterparts of ours."""
    if all(cell.comparable for row in rows for cell in row.cells if cell.paper):
        return ""
    shots = published.only_shots(experiment)
    at = f" at m = {shots}" if shots else ""
    return (
        f"The paper's numbers without a difference are {names.model(published.MODEL)}'s{at}: a reference only, since "
        "the paper has no result with our model or m."
    )
