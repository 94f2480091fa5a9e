"""Rows in memory: lists of texts or of mappings, arrays, pandas tables."""

import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from knnprompt_jax import errors


def rows_of(X: Any, fields: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return rows as mappings from column to value; a text becomes the only field.

    Raises:
      UserError: X is a single text or row, or holds something else.
    """
    if isinstance(X, str | bytes | Mapping) or not isinstance(X, Iterable):
        raise errors.UserError(f"X is a single {type(X).__name__}: give several texts or rows, as a list")
    if hasattr(X, "columns") and hasattr(X, "to_dict"):
        return X.to_dict("records")
    rows = list(X)
    for index, row in enumerate(rows):
        if isinstance(row, str):
            if len(fields) > 1:
                raise errors.UserError(
                    f"row {index}: a text alone, but the task has the fields {', '.join(fields)}: give rows"
                )
            rows[index] = {fields[0]: row}
        elif not isinstance(row, Mapping):
            raise errors.UserError(f"row {index}: a {type(row).__name__}, not a text or a row with named fields")
    return rows


def label_string(place: str, label: Any) -> str:
    """Return a label as a string, given a string, whole number or truth value; raise UserError on anything else."""
    if type(label).__name__ in ("bool", "bool_"):  # This covers NumPy's without importing it.
        return str(bool(label))
    if isinstance(label, numbers.Integral):
        return str(int(label))
    if not isinstance(label, str):
        raise errors.UserError(f"{place}: label {label!r} is a {type(label).__name__}, not a text or a whole number")
    return str(label)
