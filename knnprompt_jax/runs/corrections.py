"""Corrected labels in a file: the suggestions of `look` after a person went through them, or a table with the columns id and label."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from knnprompt_jax import errors, tables
from knnprompt_jax.classifier import contents
from knnprompt_jax.tasks import formats
from knnprompt_jax.tasks import tables as label_tables
from knnprompt_jax.tasks.task import Task, listed

ID, LABEL, SUGGESTED = "id", "label", "suggested"


@dataclasses.dataclass(frozen=True)
class Corrections:
    """The labels that anchors are to have and do not have yet, by id; and the ids of the file that are no anchors any more."""

    labels: Mapping[int, str]
    gone: tuple[int, ...]


def read(path: str, encoding: str, content: contents.Content) -> Corrections:
    """What a file says of the anchors of a saved classifier.

    In a file with the column `suggested`, that is the right label, and `label` the one that the anchor has; where `suggested` is
    empty, the label stays. In other files `label` is the right one.

    Raises:
      UserError: with file and line, on a row without the columns, an id that no anchor can have had, two labels for one id, or a
        `label` beside `suggested` that is not the anchor's, for then somebody wrote the right one into the wrong column.
    """
    now = {row.row: row.label for row in content.anchors}
    shown = {row.row for row in content.demonstrations}
    wanted: dict[int, str] = {}
    for place, row in formats.read(pathlib.Path(path), encoding):
        number = _id(place, row)
        if number in shown:
            raise errors.UserError(
                f"{place}: id {number} is a demonstration's, whose label stands in every prompt: correct its row and fit again"
            )
        if not 0 <= number < content.num_rows:
            raise errors.UserError(f"{place}: id {number} is no anchor's: choose from 0 to {content.num_rows - 1}")
        label = _wanted(content.task, place, row, now.get(number, ""))
        if label and wanted.setdefault(number, label) != label:
            raise errors.UserError(
                f"{place}: id {number} has two labels in this file, {wanted[number]!r} and {label!r}"
            )
    labels = {number: label for number, label in wanted.items() if now.get(number, label) != label}
    return Corrections(labels, tuple(number for number in wanted if number not in now))


def _id(place: str, row: Mapping[str, Any]) -> int:
    value = _cell(place, row, ID).strip()
    if not value.isdecimal():
        raise errors.UserError(f"{place}: id {value!r}: a whole number is needed, as in the listings of `look`")
    return int(value)


def _wanted(task: Task, place: str, row: Mapping[str, Any], now: str) -> str:
    """The label that a row asks for; empty where it asks for none. `now` is the anchor's; empty where there is none."""
    label = _label(task, place, row, LABEL) if LABEL in row or SUGGESTED not in row else now
    if SUGGESTED not in row:
        if not label:
            raise errors.UserError(f"{place}: the label is empty")
        return label
    suggested = _label(task, place, row, SUGGESTED)
    if now not in ("", label, suggested):
        raise errors.UserError(
            f"{place}: label {label!r} is not that of anchor {row[ID]}, {now!r}: the right label belongs into the column {SUGGESTED!r}"
        )
    return suggested


def _label(task: Task, place: str, row: Mapping[str, Any], column: str) -> str:
    """The label in a cell; a spreadsheet's guard against formulas is taken off."""
    label = _cell(place, row, column)
    return label if label in task.classes else tables.from_cell(label.strip())


def _cell(place: str, row: Mapping[str, Any], column: str) -> str:
    if column not in row:
        raise errors.UserError(f"{place}: lacks the column {column!r}; it has {listed(row)}")
    value = row[column]
    return "" if value is None else label_tables.label_string(place, value)
