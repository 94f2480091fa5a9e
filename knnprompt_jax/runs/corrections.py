"""Read corrected labels from a file: the suggestions of `look` after a person went through them, or a table of id and label."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from knnprompt_jax import errors, tables
from knnprompt_jax.classifier import saving
from knnprompt_jax.tasks import formats
from knnprompt_jax.tasks.task import Task, is_empty, label_string, listed

ID, LABEL, SUGGESTED = "id", "label", "suggested"


@dataclasses.dataclass(frozen=True)
class Corrections:
    """The new label of each anchor id, without labels that the anchor has already; and ids that were removed earlier."""

    labels: Mapping[int, str]
    missing: tuple[int, ...]


def read(path: str, encoding: str, content: saving.Content) -> Corrections:
    """Read the corrections for the anchors of a saved classifier.

    In a file with the column `suggested`, that is the right label and `label` is the current one; an empty `suggested` keeps the
    label. In other files `label` is the right one.

    Raises:
      UserError: with file and line: a missing column, an id that no anchor can have had, two labels for one id, or a `label`
        beside `suggested` that is not the anchor's, because the right label was then written into the wrong column.
    """
    current = {row.row: row.label for row in content.anchors}
    demonstrations = {row.row for row in content.demonstrations}
    wanted: dict[int, str] = {}
    for place, row in formats.read(pathlib.Path(path), encoding):
        number_text = _cell(place, row, ID).strip()
        if not number_text.isdecimal():
            raise errors.UserError(f"{place}: id {number_text!r}: an integer is required, as in the listings of `look`")
        number = int(number_text)
        if number in demonstrations:
            raise errors.UserError(
                f"{place}: id {number} is a demonstration, whose label is part of every prompt: correct its row and fit again"
            )
        if number >= content.num_rows:
            raise errors.UserError(f"{place}: id {number} is no anchor: choose from 0 to {content.num_rows - 1}")
        label = _wanted(content.task, place, row, current.get(number, ""))
        if label and wanted.setdefault(number, label) != label:
            raise errors.UserError(
                f"{place}: id {number} has two labels in this file, {wanted[number]!r} and {label!r}"
            )
    labels = {number: label for number, label in wanted.items() if current.get(number, label) != label}
    return Corrections(labels, tuple(number for number in wanted if number not in current))


def _wanted(task: Task, place: str, row: Mapping[str, Any], current: str) -> str:
    """Return the requested label, or "". `current` is the anchor's label, or "" if the anchor was removed."""
    label = _label(task, place, row, LABEL) if LABEL in row or SUGGESTED not in row else current
    if SUGGESTED not in row:
        if not label:
            raise errors.UserError(f"{place}: the label is empty")
        return label
    suggested = _label(task, place, row, SUGGESTED)
    if current not in ("", label, suggested):
        raise errors.UserError(
            f"{place}: label {label!r} is not that of anchor {row[ID]}, {current!r}: write the right label into the column "
            f"{SUGGESTED!r}"
        )
    return suggested


def _label(task: Task, place: str, row: Mapping[str, Any], column: str) -> str:
    """Return the label in a cell, without a spreadsheet's guard against formulas."""
    label = _cell(place, row, column)
    return label if label in task.classes else tables.from_cell(label.strip())


def _cell(place: str, row: Mapping[str, Any], column: str) -> str:
    if column not in row:
        raise errors.UserError(f"{place}: lacks the column {column!r}; it has {listed(row)}")
    return "" if is_empty(row[column]) else label_string(place, row[column])
