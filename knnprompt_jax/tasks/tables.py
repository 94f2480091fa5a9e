"""Rows as users hold them: lists of texts or of mappings, arrays, tables of pandas."""

import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from knnprompt_jax import errors


def rows_of(X: Any, fields: Sequence[str]) -> list[Mapping[str, Any]]:
    """The rows as mappings from column to value: a table's, mappings as they are, texts under the only field.

    Raises:
      UserError: X is one text or one row and not several, or holds something else.
    """
    if isinstance(X, str | bytes | Mapping) or not isinstance(X, Iterable):
        raise errors.UserError(f"X is a single {type(X).__name__}: give several texts or rows, as a list")
    if hasattr(X, "columns") and hasattr(X, "to_dict"):
        return X.to_dict("records")
    return [_row(f"row {index}", row, fields) for index, row in enumerate(X)]


def label_string(place: str, label: Any) -> str:
    """A label as tasks write it: whole numbers and truth values as strings; raises UserError where it is something else."""
    if type(label).__name__ in ("bool", "bool_"):  # By name, for NumPy's need not be imported.
        return str(bool(label))
    if isinstance(label, numbers.Integral):
        return str(int(label))
    if not isinstance(label, str):
        raise errors.UserError(f"{place}: label {label!r} is a {type(label).__name__}, not a text or a whole number")
    return str(label)


def _row(place: str, row: Any, fields: Sequence[str]) -> Mapping[str, Any]:
    if isinstance(row, Mapping):
        return row
    if not isinstance(row, str):
        raise errors.UserError(f"{place}: a {type(row).__name__}, not a text or a row with named fields")
    if len(fields) > 1:
        raise errors.UserError(f"{place}: a text alone, but the task has the fields {', '.join(fields)}: give rows")
    return {fields[0]: row}
