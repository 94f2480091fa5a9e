"""Rows and cells as users give them: texts, labels, empty cells, and columns of ids, numbers or dates."""

import decimal
import numbers
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from knnprompt_jax import characters, errors

PREDICTED = "look_predicted"
PROBABILITY = "look_probability"
NOVELTY = "look_novelty"
WHY = "look_why"
ADDED = (PREDICTED, PROBABILITY, NOVELTY, WHY)
"""The columns that `look` adds to a table of texts to label. They are no texts of the task."""
_WRITTEN = (
    ("suggested", "checked", "neighbours", "same_text"),  # look
    ("prediction", "label_probability"),  # evaluate
    ("input_label", "novelty"),  # predict
)
"""Columns that a command writes beside texts; a table that has all columns of a line is one of that command's."""
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_MAX_WHOLE = 2**53  # Larger floats are not exact.
_SURROGATE = re.compile("[\ud800-\udfff]")
_DATE_WORD = re.compile(
    r"(?i)\b((mon|tues?|wed(nes)?|thu(rs)?|fri|sat(ur)?|sun)(day)?|jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|"
    r"july?|aug(ust)?|sept?(ember)?|oct(ober)?|nov(ember)?|dec(ember)?|am|pm|(?-i:[A-Z]{2,4}))\b|(?<=\d)(st|nd|rd|th)\b"
)  # Upper case: time zones.
_ID = re.compile(r"(?i:(^|[\W_])(id|idx|index|uuid|guid))$|[a-z]I[dD]$")


def rows_of(X: Any, fields: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return rows as mappings from column to value; a text becomes the value of the only field.

    Args:
        X: texts or rows, or a column or table of pandas, polars or pyarrow.
        fields: the fields of the task.

    Raises:
        UserError: X is a single text or row, has no order, or holds something else.
    """
    if hasattr(X, "collect") and hasattr(X, "lazy"):
        raise errors.UserError(f"X is a {type(X).__name__}: give X.collect()")
    X = as_python(X)
    if isinstance(X, str | bytes | Mapping) or not isinstance(X, Iterable) or getattr(X, "shape", None) == ():
        raise errors.UserError(f"X is a single {type(X).__name__}: give several texts or rows, as a list")
    check_ordered("X", X)
    rows = [row.to_dict() if hasattr(row, "to_dict") else row for row in X]  # Rows of a pandas table.
    for index, row in enumerate(rows):
        if isinstance(row, str) or is_empty(row):
            if len(fields) > 1:
                raise errors.UserError(
                    f"row {index}: a text alone, but the task has the fields {errors.join_names(fields)}: give rows"
                )
            rows[index] = {fields[0]: row}
        elif not isinstance(row, Mapping):
            raise errors.UserError(f"row {index}: a {type(row).__name__}, not a text or a row with named fields")
    return rows


def check_ordered(name: str, values: Any) -> None:
    """Raise UserError if texts or labels have no order of their own."""
    if isinstance(values, Set | Mapping):
        raise errors.UserError(f"{name} is a {type(values).__name__}, which has no order: give a list")


def check_paired(num_rows: int, num_labels: int) -> None:
    """Raise UserError unless there is a label for each row."""
    if num_rows != num_labels:
        raise errors.UserError(f"X has {num_rows} rows, y {num_labels} labels: each row needs one")


def as_python(values: Any) -> Any:
    """Return a table as a list of rows, a column of pyarrow as a list, and other values unchanged.

    Raises:
        UserError: two columns of the table have one name.
    """
    names: Any = getattr(values, "column_names", None) or getattr(values, "columns", ())
    if repeated := errors.repeated(names):
        raise errors.UserError(f"X has the column {repeated[0]!r} more than once")
    for method in ("to_dicts", "to_pylist"):  # polars, pyarrow
        if hasattr(values, method):
            return getattr(values, method)()
    return values.to_dict("records") if hasattr(values, "columns") and hasattr(values, "to_dict") else values


def label_string(place: str, label: Any) -> str:
    """Return a label as a string, given a string, whole number or truth value; raise UserError on anything else.

    A whole number may be a float: pandas converts a column of integers with an empty cell.
    """
    if is_empty(label):
        raise errors.EmptyCell(f"{place}: the label is missing")
    if type(label).__name__ in ("bool", "bool_"):  # This covers NumPy's without importing it.
        return str(bool(label))
    if (number := whole(label)) is not None:
        return str(number)
    if not isinstance(label, str):
        raise errors.UserError(f"{place}: label {label!r} is a {type(label).__name__}, not a text or a whole number")
    if label.endswith("\0"):
        raise errors.UserError(f"{place}: label {label!r} ends in a NUL character, which arrays lose")
    check_characters(f"{place}: label {label!r}", label)
    return str.__str__(label)  # Of an enumeration of texts, the text.


def whole(value: Any) -> int | None:
    """Return the value of a whole number, which may be a float; None for anything else."""
    number: Any = value.item() if hasattr(value, "item") else value  # The bound is none of NumPy's float16.
    if isinstance(value, numbers.Integral):
        return int(number) if isinstance(number, int) else None  # NumPy's durations claim to be integers.
    if not isinstance(value, numbers.Real | decimal.Decimal) or not abs(number) <= _MAX_WHOLE:
        return None
    return int(number) if number == int(number) else None


def check_characters(place: str, text: str) -> None:
    """Raise UserError if a text holds half of a surrogate pair, which no encoding can write."""
    if surrogate := _SURROGATE.search(text):
        raise errors.UserError(f"{place} holds half a character: U+{ord(surrogate[0]):04X}")


def is_number(label: str) -> bool:
    """Whether a label is an integer of at most 64 bits."""
    return bool(_NUMBER.fullmatch(label)) and -(2**63) <= int(label) < 2**63


def is_empty(value: Any) -> bool:
    """Whether a cell has no value: None, NaN, pandas's NA or NaT, or only blanks and invisible characters."""
    if isinstance(value, str):
        return characters.is_blank(value)
    if isinstance(value, decimal.Decimal):
        return value.is_nan()  # A signalling NaN cannot be compared.
    is_nan = isinstance(value, numbers.Real) and value != value
    return value is None or bool(is_nan) or type(value).__name__ in ("NAType", "NaTType")


def text_share(values: Iterable[Any]) -> float:
    """Return the share of texts among a column's non-empty cells; 1 if all are empty."""
    are_texts = [isinstance(value, str) for value in values if not is_empty(value)]
    return sum(are_texts) / len(are_texts) if are_texts else 1.0


def written_columns(columns: Set[str]) -> set[str]:
    """Return the columns of a table that one of our commands wrote; they are no texts of the task."""
    written = {name for names in _WRITTEN if columns >= set(names) for name in names}
    return written | (columns & set(ADDED))


def is_identifier(column: str, values: Iterable[Any]) -> bool:
    """Whether a column holds ids, numbers or dates.

    Such a cell is one word with a digit, or a text with digits whose only letters are English words of dates. In a
    column named like an id, it is any one word. Cells that are not texts are ignored.
    """
    word = r"\S+" if is_named_as_identifier(column) else r"\S*\d\S*"
    texts = (value.strip() for value in values if isinstance(value, str) and value.strip())
    return all(
        re.fullmatch(word, text) or re.fullmatch(r"(?=.*\d)[\W\d_]+", _DATE_WORD.sub("", text)) for text in texts
    )


def is_named_as_identifier(column: str) -> bool:
    """Whether a column's name is id, ticket_id, uuid, rowIndex or similar."""
    return bool(_ID.search(column.strip()))
