"""Rows and cells as users give them: texts, labels, empty cells, and columns of ids, numbers or dates."""

import numbers
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from knnprompt_jax import errors

_NUMBER = re.compile(r"-?[0-9]{1,19}")
_SURROGATE = re.compile("[\ud800-\udfff]")
_DATE_WORD = re.compile(
    r"(?i)\b((mon|tues?|wed(nes)?|thu(rs)?|fri|sat(ur)?|sun)(day)?|jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|"
    r"july?|aug(ust)?|sept?(ember)?|oct(ober)?|nov(ember)?|dec(ember)?|am|pm|(?-i:[A-Z]{2,4}))\b|(?<=\d)(st|nd|rd|th)\b"
)  # Upper case: time zones.
_ID = re.compile(r"(?i:(^|[\W_])(id|idx|index|uuid|guid))$|[a-z]I[dD]$")


def rows_of(X: Any, fields: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return rows as mappings from column to value; a text becomes the value of the only field.

    Raises:
        UserError: X is a single text or row, or holds something else.
    """
    if isinstance(X, str | bytes | Mapping) or not isinstance(X, Iterable):
        raise errors.UserError(f"X is a single {type(X).__name__}: give several texts or rows, as a list")
    if hasattr(X, "columns") and hasattr(X, "to_dict"):
        columns = list(X.columns)
        if repeated := [column for column in columns if columns.count(column) > 1]:
            raise errors.UserError(f"X has the column {repeated[0]!r} more than once")
        return X.to_dict("records")
    rows = [row.to_dict() if hasattr(row, "to_dict") else row for row in X]  # Rows of a pandas table.
    for index, row in enumerate(rows):
        if isinstance(row, str) or is_empty(row):
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
    if is_empty(label):
        raise errors.EmptyCell(f"{place}: the label is missing")
    if type(label).__name__ in ("bool", "bool_"):  # This covers NumPy's without importing it.
        return str(bool(label))
    if isinstance(label, numbers.Integral):
        return str(int(label))
    if not isinstance(label, str):
        raise errors.UserError(f"{place}: label {label!r} is a {type(label).__name__}, not a text or a whole number")
    if label.endswith("\0"):
        raise errors.UserError(f"{place}: label {label!r} ends in a NUL character, which arrays lose")
    check_characters(f"{place}: label {label!r}", label)
    return str(label)


def check_characters(place: str, text: str) -> None:
    """Raise UserError if a text holds half of a surrogate pair, which no encoding can write."""
    if surrogate := _SURROGATE.search(text):
        raise errors.UserError(f"{place} holds half a character: U+{ord(surrogate[0]):04X}")


def is_number(label: str) -> bool:
    """Whether a label is an integer of at most 64 bits."""
    return bool(_NUMBER.fullmatch(label)) and -(2**63) <= int(label) < 2**63


def is_empty(value: Any) -> bool:
    """Whether a cell has no value: None, NaN, pandas's NA or NaT, or white space."""
    if isinstance(value, str):
        return not value.strip()
    is_nan = isinstance(value, numbers.Real) and value != value
    return value is None or bool(is_nan) or type(value).__name__ in ("NAType", "NaTType")


def is_text(values: Iterable[Any]) -> bool:
    """Whether at least nine tenths of a column's non-empty cells are texts."""
    filled = [value for value in values if not is_empty(value)]
    return 10 * sum(isinstance(value, str) for value in filled) >= 9 * len(filled)


def is_identifier(column: str, values: Iterable[Any]) -> bool:
    """Whether a column holds ids, numbers or dates.

    Such a cell is one word with a digit (in a column named like an id, any one word), or a text with digits whose only
    letters are English words of dates. Cells that are not texts are ignored.
    """
    word = r"\S+" if is_named_as_identifier(column) else r"\S*\d\S*"
    texts = (value.strip() for value in values if isinstance(value, str) and value.strip())
    return all(
        re.fullmatch(word, text) or re.fullmatch(r"(?=.*\d)[\W\d_]+", _DATE_WORD.sub("", text)) for text in texts
    )


def is_named_as_identifier(column: str) -> bool:
    """Whether a column's name is id, ticket_id, uuid, rowIndex or similar."""
    return bool(_ID.search(column.strip()))
