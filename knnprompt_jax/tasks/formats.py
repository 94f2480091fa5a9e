"""Rows from CSV, TSV, JSONL and Parquet files, one at a time, each with its place (file:line)."""

import codecs
import contextlib
import functools
import io
import itertools
import json
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator
from importlib.resources.abc import Traversable
from typing import Any, TextIO

from knnprompt_jax import characters, errors, tables
from knnprompt_jax.tasks import cells, delimited

Row = tuple[str, dict[str, Any]]
"""A row: its place and its columns."""
Parsed = tuple[str, dict[str, Any] | errors.UserError]
"""A row, or the error of a malformed row."""

_MARK = "\ufeff"  # The byte order mark as a character.
_MAX_LINE = 2**26  # Characters of a line: without a bound, an endless line would fill the memory.
_BYTE_ORDER_MARKS = {  # UTF-32 comes first, because one of its marks begins with a mark of UTF-16.
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_OTHER_KINDS = {
    b"PK\x03\x04": "a spreadsheet or another archive: save it as CSV",
    b"\xd0\xcf\x11\xe0": "a spreadsheet or document of Microsoft Office: save it as CSV",
    b"%PDF": "a PDF file",
    b"\x1f\x8b": "compressed by gzip: decompress it",
    b"PAR1": "Parquet: its name should end in .parquet",
}
"""How files that are no text begin, and what they are."""
_OTHER_TABLES = {
    re.compile(rb"\s*<(!doctype|html|\?xml)", re.IGNORECASE): "a page of HTML or XML, not a table",
    re.compile(rb'\s*(\[\s*)?\{\s*"'): "JSON: as JSON lines its name should end in .jsonl",
}
_WIDE: dict[
    tuple[bool, ...], str
] = {  # Which of the first four bytes are not 0, if two ASCII characters (of UTF-32: one) begin the file.
    (True, False, True, False): "utf-16-le",
    (False, True, False, True): "utf-16-be",
    (True, False, False, False): "utf-32-le",
    (False, False, False, True): "utf-32-be",
}


def read(path: Traversable, encoding: str = "utf-8") -> Iterator[Row]:
    """Yield the rows of a file in the format of its suffix.

    Raises:
        UserError: the suffix is unknown, the file cannot be read or decoded, or a row is malformed; the message names
            the file and the line.
    """
    for place, row in parse(path, encoding):
        if isinstance(row, errors.UserError):
            raise row
        yield place, row


def parse(path: Traversable, encoding: str = "utf-8", kind: str = "") -> Iterator[Parsed]:
    """Yield rows like `read`, but yield the error of a malformed row and continue; `kind` overrides the suffix.

    In a table that `look` wrote, cells lose the apostrophe that guards them against spreadsheets.
    """
    for place, row in _parse(path, encoding, kind):
        if isinstance(row, dict) and cells.PREDICTED in row:
            row = _unguarded(row)
        yield place, row


def _unguarded(row: dict[str, Any]) -> dict[str, Any]:
    return {
        tables.from_cell(name): tables.from_cell(cell) if isinstance(cell, str) else cell for name, cell in row.items()
    }


def _parse(path: Traversable, encoding: str, kind: str) -> Iterator[Parsed]:
    suffix = kind or pathlib.PurePath(path.name).suffix.lower()
    if suffix == ".parquet":
        yield from _read_parquet(path)
        return
    with _open(path) as file, decoding(encoding, lambda error: _undecodable(path, encoding, error)):
        if suffix not in TEXT_FORMATS:
            endings = ", ".join([*TEXT_FORMATS, ".parquet"])
            raise errors.UserError(
                f"{path}: unknown kind of file; its name should end in {endings} (save spreadsheets as CSV)"
            )
        yield from TEXT_FORMATS[suffix](as_text(file, str(path), encoding, suffix), str(path))


def read_jsonl(file: TextIO, name: str) -> Iterator[Parsed]:
    """Yield one JSON object per line, without the values of a blank key; skip blank lines."""
    for number, line in enumerate(_lines(file, name), start=1):
        if not line.strip():
            continue
        place = f"{name}:{number}"
        try:
            row = json.loads(line, object_pairs_hook=_object)
        except errors.UserError as error:
            row = errors.UserError(f"{place}: {error}")
        except (ValueError, RecursionError) as error:
            reason = f"{error.msg} at character {error.colno}" if isinstance(error, json.JSONDecodeError) else error
            row = errors.UserError(f"{place}: not JSON: {reason}; the file should hold one JSON object per line")
        if not isinstance(row, dict | errors.UserError):
            row = errors.UserError(f"{place}: a JSON {type(row).__name__}, not an object with the row's fields")
        yield place, _named(row) if isinstance(row, dict) else row


def _named(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without the columns that have no name."""
    return {name: value for name, value in row.items() if not characters.is_blank(name)}


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; raise UserError if a key occurs twice, of which `json` would keep the last."""
    if repeated := errors.repeated(key for key, _ in pairs):
        raise errors.UserError(f"the key {repeated[0]!r} occurs more than once")
    return dict(pairs)


def read_csv(file: TextIO, name: str, delimiter: str = ",") -> Iterator[Parsed]:
    """Yield rows below a header, as `delimited.read`; a row's place is its first line."""
    yield from delimited.read(_lines(file, name), name, delimiter)


def read_lines(file: TextIO, name: str) -> Iterator[Parsed]:
    """Yield one text per line, in the column `text`; skip blank lines."""
    for number, line in enumerate(_lines(file, name), start=1):
        if line.strip():
            yield f"{name}:{number}", {"text": line.removesuffix("\n")}


def _lines(file: TextIO, name: str) -> Iterator[str]:
    """Yield the lines of a file, without the byte order marks of files that were appended to it.

    Raises:
        UserError: a line is too long.
    """
    for number, line in enumerate(iter(lambda: file.readline(_MAX_LINE), ""), start=1):
        if len(line) == _MAX_LINE:
            raise errors.UserError(
                f"{name}:{number}: the line has {_MAX_LINE:,} characters or more: is it a file of rows?"
            )
        yield line.removeprefix(_MARK)


TEXT_FORMATS: dict[str, Callable[[TextIO, str], Iterator[Parsed]]] = {
    ".csv": read_csv,
    ".tsv": functools.partial(read_csv, delimiter=delimited.TAB),
    ".jsonl": read_jsonl,
    ".txt": read_lines,
}


def as_text(file: Any, name: str, encoding: str, kind: str) -> TextIO:
    """Return a binary file as text; messages call it `name`. A byte order mark overrides the encoding.

    Raises:
        LookupError: the encoding is unknown.
        UserError: the file is of another kind (`_check_kind`); it begins like UTF-16 or UTF-32 without a mark, but the
            encoding is another; or the encoding is not one of Unicode, but the first characters beyond ASCII are UTF-8,
            which text in other encodings hardly ever is. Only the beginning of a pipe is checked.
    """
    # The csv module splits lines itself, because cells may hold newlines. In other files \n, \r and \r\n end a line.
    newline = "" if kind in (".csv", ".tsv") else None
    start = file.peek(100)
    _check_kind(name, start, kind)
    marked = _marked_encoding(start)
    codec = marked or _codec_name(encoding)
    wide = _WIDE.get(tuple(map(bool, start[:4])))
    if wide and not codec.startswith(("utf-16", "utf-32")):
        raise errors.UserError(f"{name}: it looks like {wide.upper()}: add --encoding={wide}")
    if not codec.startswith("utf") and _is_utf8(file):
        raise errors.UserError(f"{name}: UTF-8, not {encoding.upper()}: add --encoding=utf-8")
    return io.TextIOWrapper(file, marked or encoding, newline=newline)


def _check_kind(name: str, start: bytes, kind: str) -> None:
    """Raise UserError if a file begins like one that holds no text, or as a CSV or TSV file begins like no table."""
    found = [what for beginning, what in _OTHER_KINDS.items() if start.startswith(beginning)]
    if kind in (".csv", ".tsv"):
        found += [what for beginning, what in _OTHER_TABLES.items() if beginning.match(start)]
    if found:
        raise errors.UserError(f"{name}: it is {found[0]}")


def _marked_encoding(start: bytes) -> str | None:
    """Return the encoding that a byte order mark at the start of a file says; None without one."""
    return next((name for mark, name in _BYTE_ORDER_MARKS.items() if start.startswith(mark)), None)


def _codec_name(encoding: str) -> str:
    """Return Python's name of an encoding, whose aliases are many; raise LookupError if it is unknown."""
    try:
        return codecs.lookup(encoding).name
    except ValueError as error:  # A NUL character.
        raise LookupError(str(error)) from None


def _is_utf8(file: Any) -> bool:
    """Whether the first block of a file that is not ASCII is UTF-8; the block may end within a character."""
    if not file.seekable():
        return _has_utf8([file.peek()])
    start = file.tell()
    try:
        return _has_utf8(iter(functools.partial(file.read, 2**20), b""))
    finally:
        file.seek(start)


def _has_utf8(blocks: Iterable[bytes]) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        return any(not decoder.decode(block).isascii() for block in blocks)
    except UnicodeDecodeError:
        return False


@contextlib.contextmanager
def _open(path: Traversable) -> Iterator[Any]:
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise errors.UserError(f"{path}: cannot read the file: {error.strerror or error}") from error


@contextlib.contextmanager
def decoding(encoding: str, message: Callable[[UnicodeError], str]) -> Iterator[None]:
    """Turn an unknown encoding, and undecodable bytes, into a UserError; `message` describes undecodable bytes."""
    try:
        yield
    except LookupError:
        raise errors.UserError(f"encoding={encoding!r}: unknown; choose utf-8, utf-16, latin-1, cp1252, …") from None
    except UnicodeError as error:
        raise errors.UserError(message(error)) from None


def _undecodable(path: Traversable, encoding: str, error: UnicodeError) -> str:
    """Describe the first undecodable character: its line and byte, if it is in a file, which is read again."""
    is_file = path.is_file()
    place = f"{path}:1" if is_file else str(path)
    byte = ""
    content = path.read_bytes() if is_file else b""
    marked = _marked_encoding(content)
    encoding = (marked or encoding).removesuffix("-sig")  # A codec with -sig counts bytes after the mark.
    if isinstance(error, UnicodeDecodeError):  # Otherwise the byte order mark is missing.
        try:
            content.decode(encoding)
        except UnicodeDecodeError as whole:
            line = content[: whole.start].decode(encoding, "ignore").count("\n") + 1
            place = f"{path}:{line}"
            byte = f"byte {whole.start} is 0x{content[whole.start]:02x}: "
    hint = "name the encoding with --encoding= (cp1252 in many files from Excel), or save it as UTF-8"
    if marked:
        hint = "its byte order mark names this encoding, which its text does not have: save it as UTF-8 again"
    return f"{place}: not {encoding.upper()}: {byte}{getattr(error, 'reason', error)}; {hint}"


def _read_parquet(path: Traversable) -> Iterator[Row]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise errors.UserError(
            f"{path}: reading Parquet needs pyarrow: pip install 'knnprompt_jax[parquet]'"
        ) from error
    number = 0
    with _open(path) as file:
        try:
            table = parquet.ParquetFile(file)
            if repeated := errors.repeated(table.schema_arrow.names):
                raise errors.UserError(f"{path}: it has the column {repeated[0]!r} more than once")
            rows = itertools.chain.from_iterable(batch.to_pylist() for batch in table.iter_batches(1024))
            for number, row in enumerate(rows, start=1):
                yield f"{path}:{number}", _named(row)
        except errors.UserError:
            raise
        except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors.
            raise errors.UserError(f"{path}:{number + 1}: not Parquet: {errors.one_line(error)}") from error
        except (ArithmeticError, LookupError) as error:  # Dates beyond year 9999, unknown time zones.
            raise errors.UserError(f"{path}: Python cannot represent a value after row {number}: {error}") from error
