"""Tables in files: rows of CSV, TSV, JSONL, text and Parquet files, each with its place (file:line), and examples.

Files are read in the strict mode of the standard library; a malformed row is refused with its place. Text is UTF-8,
with or without a byte order mark, or in the given encoding.
"""

import codecs
import contextlib
import csv
import dataclasses
import io
import itertools
import json
import pathlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from absl import logging

from knnprompt_jax.common import errors, text_tables
from knnprompt_jax.tasks import columns
from knnprompt_jax.tasks.columns import CHECKED, SUGGESTED
from knnprompt_jax.tasks.task import Example, Task

Row = tuple[str, dict[str, Any]]
"""A row: its place and its cells by column."""
STOP, SKIP = ON_BAD = ("stop", "skip")
LABEL = "label"  # The default column of labels.
STANDARD = "-"  # Standard input.
DELIMITERS = {",": ",", ";": ";", "tab": "\t", "|": "|"}
KINDS = ("csv", "tsv", "jsonl", "txt", "parquet")
_HEAD = 100  # Lines from which the delimiter is chosen.
_MAX_CELL = 2**26  # Characters.
_UNDECODABLE = "\udcff"  # In place of bytes that are not in the encoding.
_ADVICE = "; name the text columns with --text_columns= or, if a task names them, rename those of the file"
_ENCODING_ADVICE = "save every file as UTF-8 and leave --encoding out, or name the encoding of all with --encoding= (cp1252, utf-16-le)"
_BATCH = 1024  # Rows of a Parquet file.
_MAX_VERDICT = 20  # Characters of a verdict in a column of a labelling tool: "rejected", or "yes" if it has that name.
_NO = "(?:is|was)?(?:reject|ignor|discard|skip|cancel|delet|disapprov|invalid)(?:[lp]?ed|e)?"
_YES = "(?:is|was)?(?:accept|approv|submit|valid|validat)(?:t?ed|e)?"
# The name of a column, a colon and a cell.
_REJECTS = re.compile(rf".*:{_NO}|{_NO}:(?:true|1|1\.0|yes|x)|{_YES}:(?:false|0|0\.0|no)")
_ACCEPTS = re.compile(rf".*:{_YES}|{_YES}:(?:true|1|1\.0|yes|x)|{_NO}:(?:false|0|0\.0|no)")

csv.field_size_limit(_MAX_CELL)
codecs.register_error("undecodable", lambda error: (_UNDECODABLE, getattr(error, "end", 0)))


@dataclasses.dataclass(frozen=True)
class Table:
    """A file of rows, and how to read it.

    Attributes:
        path: the file, or - for standard input.
        label_column: the column of the labels.
        text_columns: the columns of the task's fields, in their order; by default named like the fields.
        on_bad: "stop" at a row without a text or a label, or "skip" it: a warning counts such rows.
        encoding: the encoding of a text file without a byte order mark of UTF-8 or UTF-16.
        delimiter: one of `DELIMITERS`; by default the one that splits the header and the first records alike.
        kind: one of `KINDS`; by default the ending of the file's name.
    """

    path: str
    label_column: str = LABEL
    text_columns: tuple[str, ...] = ()
    on_bad: str = STOP
    encoding: str = "utf-8"
    delimiter: str = ""
    kind: str = ""

    @property
    def ending(self) -> str:
        """The kind of the file: the given one, or the ending of its name."""
        return self.kind or pathlib.PurePath(self.path).suffix[1:].lower()

    def rows(self) -> Iterator[Row]:
        """Yield the rows in order.

        In a table that `look` wrote, cells lose the apostrophe that guards them against spreadsheets.

        Raises:
            UserError: the file cannot be read or decoded, or a row is malformed; the message names file and line.
        """
        for place, row in self._read():
            if SUGGESTED in row:
                row = {text_tables.from_cell(name): text_tables.from_cell(cell or "") for name, cell in row.items()}
            yield place, row

    def unlabelled(self, task: Task) -> Iterator[Example]:
        """Yield the rows as examples without labels, with all their cells in `extra`.

        Raises:
            UserError: see `rows`; a column is missing, or a row has no text.
        """
        return self._examples(self.rows(), task.fields, None)

    def labelled(self, task: Task, rows: Iterable[Row] | None = None) -> list[Example]:
        """Return the rows, by default those of the file, as examples.

        In a table that `look` wrote, a label in `suggested` replaces the label, and rows without a label are left out.

        Raises:
            UserError: see `rows`; there are none, a column is missing, or a row has no text or no label of the task.
        """
        return self._labelled(self.rows() if rows is None else rows, task.fields, task.label_of, task.labels)

    def infer(self) -> tuple[Task, list[Example]]:
        """Return the task that the table describes, as by `Task.infer`, and its rows; see `labelled`."""
        rows = list(self.rows())
        with errors.prefixed(self.path):
            fields = self.text_columns or columns.text_columns([row for _, row in rows], self.label_column)
        examples = self._labelled(rows, fields, columns.label_string)
        labels = [example.label for example in examples]
        with errors.prefixed(self.path):
            task = Task.infer([row.fields for row in examples], labels, label=self.label_column, fields=fields)
        return task, examples

    def _check_suggestions(self, rows: Sequence[Row], known: Sequence[str]) -> None:
        """Raise UserError unless a label in `suggested` is known or in the label column, and `checked` is empty."""
        labels = {*known, *(str(row.get(self.label_column)).strip() for _, row in rows)}
        for place, row in rows:
            suggested = row.get(SUGGESTED)
            is_free = columns.is_empty(row.get(CHECKED, "no such column"))
            if not columns.is_empty(suggested) and not (is_free and str(suggested).strip() in labels):
                advice = f"give a label that is in {self.label_column!r}, in a row with an empty 'checked'"
                raise errors.UserError(f"{place}: 'suggested' is {suggested!r}: {advice}")

    def _labelled(
        self, rows: Iterable[Row], fields: Sequence[str], label_of: Callable[[str, Any], str], known: Sequence[str] = ()
    ) -> list[Example]:
        rows = list(rows)
        self._check_suggestions(rows, known)
        examples = list(self._examples(rows, fields, label_of))
        if not examples:
            raise errors.UserError(f"{self.path}: no rows with a text and a label")
        for column in dict.fromkeys(name for _, row in rows for name in row if name != self.label_column):
            if rejected := _count_rejected(column, [row.get(column) for _, row in rows]):
                message = "%s: the column %r rejects %d rows: remove them if their labels are wrong"
                logging.warning(message, self.path, column, rejected)
        if garbled := sum("\ufffd" in "".join(row.fields.values()) for row in examples):
            logging.warning("%s: %d texts hold the character U+FFFD: they were decoded wrongly", self.path, garbled)
        return examples

    def _examples(
        self, rows: Iterable[Row], fields: Sequence[str], label_of: Callable[[str, Any], str] | None
    ) -> Iterator[Example]:
        """Yield examples, with labels if there is `label_of`; leave out rows as `on_bad` says, and count them."""
        column_of = self._column_of(fields, bool(label_of))
        used = {*column_of.values(), self.label_column} if label_of else set()
        skipped = []
        for index, (place, row) in enumerate(rows):
            label = self._label(place, row) if label_of else None
            try:
                texts = columns.text_cells(place, row, column_of, _ADVICE)
                name = label_of(place, label) if label_of else ""
            except errors.EmptyCell as error:
                waits_for_label = SUGGESTED in row and label_of and columns.is_empty(label)
                if self.on_bad == STOP and not waits_for_label:
                    raise errors.UserError(f"{error}; --on_bad=skip leaves such rows out") from None
                skipped.append(place)
            else:
                extra = {column: cell for column, cell in row.items() if column not in used}
                yield Example(texts, name, index, place, extra)
        if skipped:
            message = "%s: %d rows without a text or a label are left out, the first at %s"
            logging.warning(message, self.path, len(skipped), skipped[0])

    def _column_of(self, fields: Sequence[str], is_labelled: bool) -> dict[str, str]:
        """Return the column of each field; raise UserError unless there is one for each, without that of labels."""
        if self.ending == "txt" and len(fields) == 1:
            return {fields[0]: "text"}
        named = self.text_columns or fields
        if len(named) != len(fields) or (is_labelled and self.label_column in named):
            advice = f"give a column for each of {errors.join_names(fields)}, in this order, but not the label column"
            raise errors.UserError(f"--text_columns={','.join(named)}: {advice}")
        return dict(zip(fields, named, strict=True))

    def _label(self, place: str, row: dict[str, Any]) -> Any:
        """Return the cell of a row's label."""
        if not columns.is_empty(row.get(SUGGESTED)):
            return row[SUGGESTED]
        if self.label_column not in row:
            found = f"no label column {self.label_column!r}, only {errors.join_names(row)}"
            raise errors.UserError(f"{place}: {found}: name it with --label_column=")
        return row[self.label_column]

    def _read(self) -> Iterator[Row]:
        """Yield the rows in the format of the file."""
        kind = self.ending
        name = "standard input" if self.path == STANDARD else self.path
        try:
            with contextlib.nullcontext(sys.stdin.buffer) if self.path == STANDARD else open(self.path, "rb") as file:
                if kind == "parquet":
                    yield from _read_parquet(file, name)
                elif kind in ("csv", "tsv"):
                    yield from _read_csv(self._lines(file, name), name, DELIMITERS.get(self.delimiter, ""))
                elif kind in _LINE_FORMATS:
                    yield from _LINE_FORMATS[kind](self._lines(file, name), name)
                else:
                    advice = f"choose {', '.join(KINDS)} by the name's ending (predict: --format=)"
                    raise errors.UserError(f"{name}: of kind {kind!r}; {advice}")
        except OSError as error:
            raise errors.UserError(f"{name}: cannot read the file: {error.strerror or error}") from error

    def _lines(self, file: Any, name: str) -> Iterator[str]:
        """Yield the lines of a file with their ends; raise UserError at the first one in another encoding."""
        mark = file.peek(4)[:4]
        is_utf16 = mark[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) and mark != codecs.BOM_UTF32_LE
        encoding = "utf-8-sig" if mark.startswith(codecs.BOM_UTF8) else "utf-16" if is_utf16 else self.encoding
        try:
            text = io.TextIOWrapper(file, encoding, errors="undecodable", newline="")
            is_unicode = codecs.lookup(encoding).name.startswith("utf")
            for number, line in enumerate(text, start=1):
                is_other = not (is_unicode or line.isascii()) and _is_utf8(line.encode(encoding, "replace"))
                if is_other or _UNDECODABLE in line or (number == 1 and "\0" in line):
                    raise errors.UserError(f"{name}:{number}: not {encoding.upper()}: {_ENCODING_ADVICE}")
                yield line if number > 1 else line.lstrip("\ufeff")  # A second mark.
        except (LookupError, UnicodeError) as error:
            raise errors.UserError(f"{name}: --encoding={encoding}: {error}") from None


def _is_utf8(content: bytes) -> bool:
    return content.decode(errors="ignore").encode() == content


def _count_rejected(column: str, cells: Iterable[Any]) -> int:
    """Return how many cells reject a row; 0 if more cells are no verdict than accept one, as in a column of texts."""
    name = columns.fold_name(column).rstrip("?")
    given = [str(cell) for cell in cells if not columns.is_empty(cell)]
    verdicts = [f"{name}:{columns.fold_name(cell)}" for cell in given if len(cell) <= _MAX_VERDICT]
    rejected = sum(map(bool, map(_REJECTS.fullmatch, verdicts)))
    accepted = sum(map(bool, map(_ACCEPTS.fullmatch, verdicts)))
    return rejected if len(given) <= rejected + 2 * accepted else 0


def _read_csv(lines: Iterator[str], name: str, delimiter: str) -> Iterator[Row]:
    """Yield the records below a header, without those of empty cells and without columns that have no name.

    The place of a record is its first line.
    """
    head = list(itertools.islice(lines, _HEAD))
    line = 1
    try:
        delimiter = delimiter or _delimiter(name, head)
        reader = csv.reader(itertools.chain(head, lines), delimiter=delimiter, strict=True)
        header = [cell.strip() for cell in next(filter(None, reader), [])]
        _check_header(header)
        line = reader.line_num + 1
        for cells in reader:
            is_blank = len(cells) != 1 and not any(map(str.strip, cells))
            if not is_blank and len(cells) != len(header):
                raise csv.Error(f"{len(cells)} cells, but the header has {len(header)}")
            if not is_blank:
                row = dict(zip(header, cells, strict=True))
                row.pop("", None)  # A column without a name.
                yield f"{name}:{line}", row
            line = reader.line_num + 1
    except csv.Error as error:
        advice = "; is a quote missing, not doubled or after a blank? Or give --delimiter=" if line > 1 else ""
        raise errors.UserError(f"{name}:{line}: not CSV with the delimiter {delimiter!r}: {error}{advice}") from None


def _check_header(names: Sequence[str]) -> None:
    """Raise csv.Error if two columns have one name, or if the line is not the header but for Excel."""
    if names and names[0].lower().startswith("sep="):
        raise csv.Error(f"remove this line, {names[0]!r}")
    if repeated := errors.repeated(filter(None, names)):
        raise csv.Error(f"more than one column is named {repeated[0]!r}: {errors.join_names(names)}")


def _delimiter(name: str, head: Sequence[str]) -> str:
    """Return the delimiter that splits the header, and if several do, splits it like the first records."""
    found = {}
    for delimiter in DELIMITERS.values():
        widths = [len(cells) for cells in csv.reader(head, delimiter=delimiter) if cells]
        if widths and widths[0] > 1:
            found[delimiter] = {*widths[: -1 if len(head) == _HEAD else None]}  # The head may end within a record.
    if len(found) > 1:
        found = {delimiter: widths for delimiter, widths in found.items() if len(widths) == 1}
        if len(found) != 1:
            choices = ", ".join(DELIMITERS)
            raise errors.UserError(f"{name}: cannot tell what separates its cells: give --delimiter= ({choices})")
    return next(iter(found), ",")


def _read_jsonl(lines: Iterator[str], name: str) -> Iterator[Row]:
    """Yield one JSON object per line; skip blank lines."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=_json_object)
            if not isinstance(row, dict):
                raise ValueError(f"a {type(row).__name__}")
        except (csv.Error, ValueError, RecursionError) as error:
            raise errors.UserError(f"{name}:{number}: not a JSON object: {error}; each line should hold one") from None
        yield f"{name}:{number}", row


def _json_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; raise csv.Error if it has a key twice."""
    row = dict(pairs)
    if len(row) < len(pairs):
        _check_header([name for name, _ in pairs])
    return row


def _read_lines(lines: Iterator[str], name: str) -> Iterator[Row]:
    """Yield one text per line, in the column `text`; skip blank lines."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield f"{name}:{number}", {"text": line.rstrip("\r\n")}


_LINE_FORMATS = {"jsonl": _read_jsonl, "txt": _read_lines}


def _read_parquet(file: Any, name: str) -> Iterator[Row]:
    """Yield the rows without the index that pandas stored as columns."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise errors.UserError(f"{name}: Parquet needs pyarrow: pip install 'knnprompt_jax[parquet]'") from error
    try:
        table = parquet.ParquetFile(file)
        names = columns.arrow_columns(table.schema_arrow)
        _check_header(names)
        rows = itertools.chain.from_iterable(batch.to_pylist() for batch in table.iter_batches(_BATCH, columns=names))
        for number, row in enumerate(rows, start=1):
            yield f"{name}:{number}", row
    except (csv.Error, ValueError, ArithmeticError, LookupError) as error:  # pyarrow's own errors are ValueErrors.
        raise errors.UserError(f"{name}: not readable as Parquet: {errors.one_line(error)}") from error
