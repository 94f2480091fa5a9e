"""Cells of rows as users give them: texts, labels, empty cells, and columns of ids, numbers or dates."""

import math
import numbers
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from knnprompt_jax.common import errors

SUGGESTED = "suggested"
PROBABILITY = "probability"
NOVELTY = "novelty"
REASON = "reason"
CHECKED = "checked"
ADDED = (SUGGESTED, PROBABILITY, NOVELTY, REASON, CHECKED)
"""The columns that `look` adds to a table. In a table with `suggested` they are no texts of the task."""
COMPUTED = (PROBABILITY, NOVELTY, REASON)
"""Those of them that `look` fills."""
_ERRORS = (  # Of spreadsheets in many languages: #WERT!, #¿NOMBRE?
    "REF VALUE NAME NUM NULL DIV/0 SPILL CALC FIELD BLOCKED ERROR WERT BEZUG ZAHL ÜBERLAUF VALEUR NOM NOMBRE NUL VALOR "
    "NÚM NULO VALORE RIF NOME NULLO WAARDE VERW NAAM GETAL DEEL/0 LEEG ARG ADR NAZWA LICZBA DZIEL/0 ЗНАЧ ССЫЛКА ИМЯ "
    "ЧИСЛО ДЕЛ/0 ПУСТО VÄRDEFEL REFERENS DIVISION/0 NAMN OGILTIGT SAKNAS VÆRDI REFERENCE NAVN ARVO VIITTAUS JAKO/0 NIMI "
    "PUUTTUU DEĞER BAŞV SAYI/0 HODNOTA NÁZEV ÉRTÉK ZÉRÓOSZTÓ NÉV"
)
_NO_VALUE = re.compile(
    r"(?=[#=EF])(?:"  # Fails fast.
    rf"#[¡¿]?(?:{_ERRORS.replace(' ', '|')})[!?]"
    r"|#(?:[^\W\d]/[^\W\d]!?|NV|YOK|HIÁNYZIK|NENÍ_K_DISPOZICI|GETTING_DATA)"
    r"|(?:Err|Fehler):5\d\d"
    r"|=[-+(]*([\w.]+\(.*\)|('.*'!|\S*!)?\$?[A-Za-z]{1,3}\$?\d+)([-+*/&^:].*)?)",  # Formulas: =VLOOKUP(…), =A2
    re.DOTALL,
)
_NO_LABEL = re.compile(
    r".*[\n\v\f\r\x85\u2028\u2029].*|[\[({](|['\"].*|.*,.*)[\])}]|\[[\d\s.]*\]|\{.*:.*\}|\[object .*"  # Lists, objects.
    r"|#+|#(?i:err|ref|value|name|num|null|n/a n/a)|(?i:err(eur)?|fehler) *: *5\d\d"  # What may be a text, but no class.
    r"|\\N|(?i:[(<\[]null[)>\]])|\{?[=+](\{.*|[A-Z]{1,3}\d+\}?|[A-Z]+\(.*|TRUE|FALSE)",
    re.DOTALL,
)
_SPACING = re.compile("[\\s_\u00ad\u200b-\u200f\u2060\ufeff]+")  # Blanks, underscores, invisible characters.
_MAX_NAME = 50  # Characters of a column's name. A longer text needs no comparison, which takes time.
_MARKS = "\ufeff\"' \t"  # Around the names in the header of a file that was appended to another.
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_INDEX = "__index_level_"  # Begins pandas's name of an index without one.
_MIN_TEXTS = 0.9  # The share of rows that hold a text in a column of texts.
_DATE_WORD = re.compile(
    r"(?i)\b((mon|tues?|wed(nes)?|thu(rs)?|fri|sat(ur)?|sun)(day)?|jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|"
    r"july?|aug(ust)?|sept?(ember)?|oct(ober)?|nov(ember)?|dec(ember)?|am|pm|(?-i:[A-Z]{2,4}))\b|(?<=\d)(st|nd|rd|th)\b"
)  # Upper case: time zones.
_ID = re.compile(r"(?i:(^|[\W_])(id|idx|index|uuid|guid))$|[a-z]I[dD]$")


def rows_of(X: Any, fields: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return rows as mappings from column to cell; a text becomes the cell of the first field.

    Args:
        X: texts or rows, or a column or table of pandas, polars or pyarrow.
        fields: the fields of the task.

    Raises:
        UserError: X is a single text or row, or has no order.
    """
    return [row if isinstance(row, Mapping) else {fields[0]: row} for row in as_list("X", X)]


def as_list(name: str, values: Any) -> list[Any]:
    """Return texts, rows or labels as a list; raise UserError on a single value, or on values without an order."""
    if hasattr(getattr(values, "schema", None), "pandas_metadata"):  # pyarrow
        values = values.select(arrow_columns(values.schema))
    for method in ("to_dicts", "to_pylist"):  # polars, pyarrow
        if hasattr(values, method):
            values = getattr(values, method)()
    if hasattr(values, "columns") and hasattr(values, "to_dict"):
        values = values.to_dict("records")
    if isinstance(values, str | bytes | Set | Mapping) or not isinstance(values, Iterable):
        raise errors.UserError(f"{name} is a {type(values).__name__}: give a list, an array or a table")
    return list(values)


def arrow_columns(schema: Any) -> list[str]:
    """Return the columns of an Arrow schema without the index that pandas stored as columns."""
    index = (schema.pandas_metadata or {}).get("index_columns", ())
    return [name for name in schema.names if name not in index and not name.startswith(_INDEX)]


def check_paired(num_rows: int, num_labels: int) -> None:
    """Raise UserError unless there is a label for each row."""
    if num_rows != num_labels:
        raise errors.UserError(f"X has {num_rows} rows, y {num_labels} labels: each row needs one")


def text_cells(place: str, row: Mapping[str, Any], columns: Mapping[str, str], advice: str = "") -> dict[str, str]:
    """Return the texts of a row by field.

    Args:
        place: where the row is.
        row: its cells by column.
        columns: the column of each field.
        advice: the end of the message about a missing column.

    Raises:
        UserError: a column is missing, or a cell is not a text.
        EmptyCell: all texts are empty, one is an error or a formula of a spreadsheet, or the row is the header again.
    """
    texts = {}
    for field, column in columns.items():
        text = "" if column in row and is_empty(row[column]) else row.get(column)
        if not isinstance(text, str):
            kind = type(text).__name__ if column in row else "missing"
            names = errors.join_names(row)
            raise errors.UserError(f"{place}: the text {column!r} is {kind}; the columns are {names}{advice}")
        _check_text(f"{place}: {column!r}", text)
        texts[field] = text
    cells = {str(cell)[:_MAX_NAME].strip(_MARKS).lower() for cell in row.values()}
    is_header = len(row) > 1 and cells == {str(name).lower() for name in row}
    if is_header or not any(texts.values()):
        names = errors.join_names(columns.values())
        raise errors.EmptyCell(f"{place}: {'the header again' if is_header else f'no text in {names}'}")
    return texts


def label_string(place: str, label: Any) -> str:
    """Return a label as a string without outer blanks, given a string, whole number or truth value.

    A whole number may be a float: pandas converts a column of integers with an empty cell.

    Raises:
        EmptyCell: it is missing or something else, such as a list, an object or an error value of a spreadsheet.
        UserError: no file holds it.
    """
    if is_empty(label) or str(label).strip() in ("nan", "NaN", "NaT", "<NA>"):  # Texts of pandas for a missing label.
        raise errors.EmptyCell(f"{place}: the label is missing")
    number = whole_number(label)
    if type(label).__name__ in ("bool", "bool_"):  # This covers NumPy's without importing it.
        label = str(bool(label))
    elif number is not None:
        label = str(number)
    if not isinstance(label, str) or _NO_LABEL.fullmatch(label.strip()):
        kind = "a list, an error or a formula" if isinstance(label, str) else f"a {type(label).__name__}"
        raise errors.EmptyCell(f"{place}: label {label!r} is {kind}: give each row one text or whole number")
    _check_text(f"{place}: label", label)
    return label.strip()


def whole_number(value: Any) -> int | None:
    """Return the value of a whole number, which may be a float; None for anything else."""
    is_finite = isinstance(value, numbers.Real) and math.isfinite(value)
    number: Any = value
    return int(number) if is_finite and number == int(number) else None


def is_number(label: str) -> bool:
    """Whether a label is an integer of at most 64 bits."""
    return bool(_NUMBER.fullmatch(label)) and -(2**63) <= int(label) < 2**63


def is_empty(value: Any) -> bool:
    """Whether a cell has no value: None, NaN, pandas's NA or NaT, or only blanks."""
    if isinstance(value, str):
        return not value.strip()
    is_nan = isinstance(value, numbers.Real) and value != value
    return value is None or bool(is_nan) or type(value).__name__ in ("NAType", "NaTType")


def _check_text(place: str, text: str) -> None:
    """Raise EmptyCell on an error value or formula of a spreadsheet, and UserError on a text that no file holds."""
    if _NO_VALUE.fullmatch(text.strip()):
        raise errors.EmptyCell(f"{place} is an error or a formula of a spreadsheet: {text!r}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise errors.UserError(f"{place} holds half a character: {text!r}") from None


def fold_name(name: str) -> str:
    """Return a label or column name without case, blanks, underscores, invisible characters and forms of Unicode."""
    return _SPACING.sub("", unicodedata.normalize("NFKC", name).casefold())


def text_columns(rows: Sequence[Mapping[str, Any]], label: str | None) -> list[str]:
    """Return the columns of texts besides `label` and those that `look` added, in the order of the table.

    At least nine tenths of the rows hold a text there. Identifiers are excluded unless every column is one.

    Raises:
        UserError: there are no rows or no such column, its name is not a text, or a column is named like `label` but
            for case, blanks and underscores.
    """
    if not rows:
        raise errors.UserError("no rows")
    names = dict.fromkeys(column for row in rows for column in row)
    alike = [name for name in names if label in names and fold_name(str(name)) == fold_name(str(label))]
    if len(alike) > 1:
        raise errors.UserError(f"columns {errors.join_names(alike)}: which has the labels? Rename the other")
    excluded = {label, *(ADDED if SUGGESTED in names else ())}
    cells = {name: [row[name] for row in rows if name in row] for name in names if name not in excluded}
    texts = {name: values for name, values in cells.items() if _are_texts(values, len(rows))}
    if not texts or not all(isinstance(name, str) for name in texts):
        raise errors.UserError(
            f"no column with a name holds texts in nine of ten rows, only {errors.join_names(names)}"
        )
    return [name for name, values in texts.items() if not is_identifier(name, values)] or list(texts)


def _are_texts(values: Sequence[Any], num_rows: int) -> bool:
    given = [value for value in values if not is_empty(value)]
    share = sum(isinstance(value, str) for value in given) / len(given) if given else 1.0
    return share * len(values) >= _MIN_TEXTS * num_rows


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
