"""Read a file of corrected labels: reviewed suggestions of `look`, or a table of ids and labels."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from knnprompt_jax import characters, errors, tables
from knnprompt_jax.tasks.columns import is_empty, label_string
from knnprompt_jax.tasks.table_file import Table
from knnprompt_jax.tasks.task import Example, Task

ID = "id"
LABEL = "label"
SUGGESTED = "suggested"
CHECKED = "checked"
TEXT = "text"  # The row's text, by which a table of other rows is recognised.
_MAX_LISTED = 20  # Corrections that `describe` lists.
_YES = {*map(characters.identity, ("x", "yes", "true", "1"))}
_NO = {*map(characters.identity, ("", "no", "false", "0"))}


class Corrections(NamedTuple):
    """The new labels by row number, and the numbers of the rows whose label a person found right."""

    labels: Mapping[int, str]
    checked: frozenset[int]


def read(path: str, encoding: str, task: Task, rows: Sequence[Example], merge_labels: bool = False) -> Corrections:
    """Return the new label of each row number, without unchanged labels, and the checked rows.

    In a file with the column `suggested`, that is the right label and `label` is the current one. An empty `suggested`
    keeps the label, and so does an x in the column `checked`. In other files `label` is the right one.

    Args:
        rows: the train rows, with their present labels.
        merge_labels: a label of the same `characters.identity` as one of the task's is that label.

    Raises:
        UserError: with file and line: a missing or misspelt column, an id that no row has, two labels for one id, or a
            `checked` other than x. Also a text that is not the row's, or a `label` beside `suggested` that is not: the
            table of other rows, or the right label in the wrong column.
    """
    by_number = {row.row: row for row in rows}
    wanted: dict[int, str] = {}
    checked = set()
    names: frozenset[str] = frozenset()
    for place, cells in Table(path, encoding=encoding).rows():
        if cells.keys() != names:
            _check_columns(place, cells, task)
            names = frozenset(cells)
        row = by_number.get(_number(place, cells))
        if row is None:
            raise errors.UserError(
                f"{place}: no train row has id {cells[ID]}: the row is gone, or the file belongs to other rows"
            )
        _check_texts(place, cells, row, task)
        if _is_checked(place, cells):
            checked.add(row.row)
        new = _new_label(place, cells, row, task, merge_labels)
        if new and wanted.setdefault(row.row, new) != new:
            raise errors.UserError(
                f"{place}: id {row.row} has two labels in this file, {wanted[row.row]!r} and {new!r}"
            )
    changed = {number: label for number, label in wanted.items() if label != by_number[number].label}
    return Corrections(changed, frozenset(checked))


def describe(changes: Sequence[tuple[Example, str]]) -> list[str]:
    """Return a line for each of the first corrected rows, with both labels, and one that counts the others."""
    lines = [f"  id {row.row} ({row.place}): {row.label!r} -> {label!r}" for row, label in changes[:_MAX_LISTED]]
    return lines if len(changes) <= _MAX_LISTED else [*lines, f"  and {len(changes) - _MAX_LISTED:,} more"]


def _check_columns(place: str, cells: Mapping[str, Any], task: Task) -> None:
    """Raise UserError if a required column is missing, or if any of our columns has a slightly different name."""
    columns = (SUGGESTED, CHECKED, ID, LABEL, *_text_columns(cells, task))
    others = [name for name in cells if name not in columns]
    for column in columns:
        is_required = column == ID or (column == LABEL and SUGGESTED not in cells)
        difference = characters.difference(column, others)
        if column not in cells and (is_required or difference):
            raise errors.UserError(
                f"{place}: lacks the column {column!r}; it has {errors.join_names(cells)}{difference}"
            )


def _text_columns(cells: Mapping[str, Any], task: Task) -> Sequence[str]:
    """Return the columns of a file that may hold texts of the task; in suggestions of `look` only one does."""
    return (TEXT,) if SUGGESTED in cells else tuple(dict.fromkeys((TEXT, *task.fields)))


def _number(place: str, cells: Mapping[str, Any]) -> int:
    """Return the id in a line."""
    text = "" if is_empty(cells[ID]) else str(cells[ID]).strip()
    found = re.fullmatch(r"(\d{1,18})(?:\.0+)?", text, re.ASCII)  # pandas writes 1 as 1.0 beside an empty cell.
    if not found:
        raise errors.UserError(f"{place}: id {text!r}: an integer is required, as in the listings of `look`")
    return int(found[1])


def _is_checked(place: str, cells: Mapping[str, Any]) -> bool:
    """Return whether a person found the label of a line right."""
    value = cells.get(CHECKED)
    answer = characters.identity("" if is_empty(value) else str(value))
    if answer not in _YES | _NO:
        raise errors.UserError(f"{place}: {CHECKED} {value!r}: write x if the label is right, otherwise nothing")
    return answer in _YES


def _check_texts(place: str, cells: Mapping[str, Any], row: Example, task: Task) -> None:
    """Raise UserError unless the texts in a line, if there are any, are those of the row."""
    own = {**row.extra, **row.fields}
    for column in _text_columns(cells, task):
        text = cells.get(column)
        if not isinstance(text, str):
            continue
        known = [str(own.get(column, ""))]
        if column == TEXT:
            known.append(task.retrieval_text(row).encode("utf-8", "backslashreplace").decode())
        if {*map(characters.plain, known)}.isdisjoint(map(characters.plain, (text, tables.from_cell(text)))):
            raise errors.UserError(
                f"{place}: the text is not that of row {row.row}: the row is gone, or the file belongs to other rows; if "
                f"only the text was changed, remove the column {column!r}"
            )


def _new_label(place: str, cells: Mapping[str, Any], row: Example, task: Task, merges: bool) -> str:
    """Return the right label of a row; empty if the line keeps the label."""
    label = _label(place, cells, LABEL, task, merges)
    if SUGGESTED not in cells:
        if not label:
            raise errors.UserError(f"{place}: the label is empty")
        return label
    suggested = "" if _is_checked(place, cells) else _label(place, cells, SUGGESTED, task, merges)
    if LABEL in cells and row.label not in (label, suggested):
        raise errors.UserError(
            f"{place}: label {label!r} is not that of row {row.row}, {row.label!r}: write the right label into the column "
            f"{SUGGESTED!r}"
        )
    return suggested


def _label(place: str, cells: Mapping[str, Any], column: str, task: Task, merges: bool) -> str:
    """Return the label in a cell, without a spreadsheet's guard against formulas; empty if there is none.

    A label that the task knows by another name (`Task.find_label`) is the task's.
    """
    if is_empty(cells.get(column)):
        return ""
    text = label_string(place, cells[column])
    own = tables.from_cell(text.strip())
    return own
