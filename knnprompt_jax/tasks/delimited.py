"""Records of CSV and TSV files: cells below a header, one record at a time, each with the number of its first line.

In CSV, a cell in quotes may hold delimiters, quotes (doubled) and newlines; blanks before its first quote do not count.
A record that breaks these rules is a problem of its first line only: reading resumes at the next line.

In TSV, quotes are text, except around a whole cell as spreadsheets write it, perhaps after blanks. Such a cell may hold
tabs or newlines if its record has the right number of cells only then.
"""

import collections
import re
from collections.abc import Iterator

from absl import logging

from knnprompt_jax import characters, errors

TAB = "\t"
_MAX_RECORD = 2**26  # Characters: without a bound, a quote that is never closed would fill the memory.
_MAX_HEADER = 2**14  # Characters from which the delimiter is guessed.
_MAX_NAME = 1000  # Characters of a cell that are compared with names of columns.
_MAX_KNOWN = 1000  # Distinct cells of a column that are kept to recognise labels.
_MANY_LINES = 5  # Lines of a cell that are rows with a lost quote if only those between the first and last look so.
_DECLARED_DELIMITER = re.compile(r'(?i)\s*"?sep=([^"])"?[,;\t]*\r?\n')  # A first line that spreadsheets write.
_OPEN_QUOTE = re.compile(r'(?:^|[,;\t])"(?:[^"]|"")*\Z')  # A cell whose quote is not closed.
_QUOTED = re.compile(r'"[^"]*"')
_CLOSING = re.compile(
    r'[^"]*(?:""[^"]*)*"(?!")'
)  # A line that closes a cell of earlier lines: quotes within are doubled.
_OTHER_QUOTES = "'`´‘’‚‹›“”„«»"
_IN_OTHER_QUOTES = re.compile(rf"\s*[{_OTHER_QUOTES}].*[{_OTHER_QUOTES}]\s*", re.DOTALL)  # A cell.
_OTHER_QUOTE = re.compile(rf"(?:^|[,;\t])\s*([{_OTHER_QUOTES}])")  # One at the start of a cell.
_UNSEEN = r"[^\S\r\n]|[\u00ad\u200b-\u200f\u2060\ufeff]"  # What may precede the quote of a cell.
_WHOLE = re.compile(rf'((?:{_UNSEEN})+)?"([^"]*(?:""[^"]*)*)"(?(1)(?:{_UNSEEN})*)')
_OPENS = re.compile(rf'(?:{_UNSEEN})*"')


class _Lines:
    """Lines with their numbers; lines that were taken can be given back."""

    def __init__(self, lines: Iterator[str]):
        self.number = 0
        self._lines = lines
        self._given_back: list[str] = []

    def take(self) -> str:
        """Return the next line; "" at the end."""
        line = self._given_back.pop() if self._given_back else next(self._lines, "")
        self.number += bool(line)
        return line

    def give_back(self, lines: list[str]) -> None:
        """Let the next calls of `take` return these lines."""
        self._given_back += reversed(lines)
        self.number -= len(lines)


class _Malformed(Exception):
    """A record that breaks the rules of CSV; the message says how."""


class _Csv:
    """The rules of CSV."""

    def __init__(self, delimiter: str):
        self.delimiter = delimiter
        end = re.escape(delimiter)
        blank = rf"(?:(?!{end})(?:{_UNSEEN}))"
        # Where blanks precede the first quote, blanks may also follow the last.
        self._quoted = re.compile(rf'({blank}+)?"([^"]*(?:""[^"]*)*)"(?(1){blank}*)(?={end}|\Z)')
        self._open = re.compile(rf'{blank}*"[^"]*(?:""[^"]*)*\Z')
        self._begins = re.compile(rf'{blank}*"')
        self._bare = re.compile(rf"[^{end}]*")
        self._last_suspect = 0  # The last line of a malformed record: the lines after its first are read once more.

    def record(self, lines: _Lines, line: str, width: int) -> list[str]:
        """Return the cells of the record that begins with a line that was taken; raise _Malformed otherwise."""
        number = lines.number
        taken = [line]
        try:
            cells = self.split(_content(line), width)
            while cells is None:
                self._take_until_quote(lines, taken)
                cells = self.split(_content("".join(taken)), width)
        except _Malformed:
            self._last_suspect = max(self._last_suspect, lines.number)
            lines.give_back(taken[1:])
            raise
        if number <= self._last_suspect and sum(each.count('"') for each in taken) % 2:
            raise _Malformed("an odd number of quotes, after a quote that was not closed")
        return cells

    def split(self, text: str, width: int) -> list[str] | None:
        """Return the cells of a text, or None if a quote is open at its end; raise _Malformed otherwise.

        A quote that is open after `width` cells (0: any number) is malformed, so that lost quotes take linear time.
        """
        if '"' not in text:
            return text.split(self.delimiter)
        cells = []
        start = 0
        while True:
            if found := self._quoted.match(text, start):
                cells.append(found[2].replace('""', '"'))
            elif self._open.match(text, start):
                if width and len(cells) == width:
                    raise _Malformed(f"a quote is open after {width} cells, the number of the header's")
                return None
            elif self._begins.match(text, start):
                raise _Malformed(f"{self.delimiter!r} expected after a closing quote")
            else:
                found = self._bare.match(text, start)
                assert found
                cells.append(found[0])
            start = found.end() + 1
            if start > len(text):
                return cells

    def _take_until_quote(self, lines: _Lines, taken: list[str]) -> None:
        """Take the lines of an open cell up to the one that closes it; raise _Malformed if there is none."""
        size = sum(map(len, taken))
        while line := lines.take():
            taken.append(line)
            size += len(line)
            if size > _MAX_RECORD:
                raise _Malformed(f"a quote is not closed within {_MAX_RECORD:,} characters")
            if _CLOSING.match(line):
                return
        raise _Malformed("unexpected end of data: a quote is not closed")


class _Tsv:
    """The rules of TSV."""

    delimiter = TAB

    def __init__(self, name: str):
        self._name = name
        self._csv = _Csv(TAB)
        self._has_warned = False

    def record(self, lines: _Lines, line: str, width: int) -> list[str]:
        """Return the cells of the record that begins with a line that was taken; `width` 0 is any number of cells."""
        if '"' not in line:
            return _content(line).split(TAB)
        cells = _content(line).split(TAB)
        if width != 1 and (len(cells) != width or any(map(self._is_open, cells))):
            taken = [line]
            quoted = self._quoted(lines, taken, width)
            if quoted and len(quoted) == (width or len(quoted)):
                return quoted
            lines.give_back(taken[1:])
        if not self._has_warned and any(map(self._is_open, cells)):
            self._has_warned = True
            logging.warning("%s:%d: a quote that its cell does not close is read as text", self._name, lines.number)
        return [found[2].replace('""', '"') if (found := _WHOLE.fullmatch(cell)) else cell for cell in cells]

    def _quoted(self, lines: _Lines, taken: list[str], width: int) -> list[str] | None:
        """Return the cells by the rules of CSV; None if a cell then holds lines that are rows by themselves.

        Lines that are taken are appended to `taken`.
        """
        try:
            cells = self._csv.split(_content(taken[0]), width)
            is_first_row = self._has_row(taken, width)
            while cells is None and (line := lines.take()):
                taken.append(line)
                if _CLOSING.match(line):
                    cells = self._csv.split(_content("".join(taken)), width)
                elif TAB in line and (is_first_row or self._has_row([line], width)):
                    return None
        except _Malformed:
            return None
        return None if any(map(_is_block, cells or ())) and self._has_row(taken[:-1], width) else cells

    def _has_row(self, lines: list[str], width: int) -> bool:
        """Whether one of the lines has the right number of cells, none of them empty."""
        return any(len(cells := _content(line).split(TAB)) == width and all(cells) for line in lines)

    def _is_open(self, cell: str) -> bool:
        return bool(_OPENS.match(cell)) and cell.count('"') % 2 == 1


def read(lines: Iterator[str], name: str, delimiter: str) -> Iterator[tuple[str, dict[str, str] | errors.UserError]]:
    """Yield each record's place and its cells by column, or the error of a malformed record.

    Blank lines, rows of empty cells and columns without a name are left out. A record that repeats the header is
    malformed: the file was concatenated from several.

    Args:
        lines: with their ends.
        name: the file, for places.
        delimiter: what separates cells. If the header does not have it outside quotes but has semicolons or tabs, these
            do: spreadsheets of many countries write such files.

    Raises:
        UserError: the header is missing, malformed, or names a column twice.
    """
    source = _Lines(lines)
    delimiter = _delimiter(source, delimiter)
    rules = _Tsv(name) if delimiter == TAB else _Csv(delimiter)
    header: list[str] = []
    names: list[str] = []
    has_warned = False
    lost_quotes = _LostQuotes(delimiter)
    while line := source.take():
        place = f"{name}:{source.number}"
        first = source.number
        try:
            cells = rules.record(source, line, len(header))
        except _Malformed as problem:
            bad = errors.UserError(f"{place}: not CSV: {problem}")
            if not header:  # Otherwise the next row would become the header.
                raise bad from None
            yield place, bad
            continue
        if not _content(line) or (len(header) != 1 and all(map(characters.is_blank, cells))):
            continue
        if not header:
            header = _header(place, cells)
            names = [characters.plain(column) for column in header]
        elif len(cells) != len(header):
            counted = f"{len(cells)} cell{'s' * (len(cells) != 1)}"
            quote = _OTHER_QUOTE.search(line)
            hint = f'; quotes around a cell must be ", not {quote[1]}' if quote else ""
            yield place, errors.UserError(f"{place}: {counted}, but the header has {len(header)}{hint}")
        elif _is_header(place, cells, names):
            yield place, errors.UserError(f"{place}: repeats the header: is the file made of several?")
        else:
            if len(names) == 1 and characters.plain(cells[0][:_MAX_NAME]) == names[0]:
                logging.warning("%s: a text that is the header's name: is the file made of several?", place)
            if not has_warned and len(cells) > 1 and all(map(_IN_OTHER_QUOTES.fullmatch, filter(None, cells))):
                has_warned = True
                mark = "".join(cells).lstrip()[:1]
                logging.warning('%s: %s is read as text: quotes around a cell must be "', place, mark)
            lost_quotes.check(place, source.number - first + 1, cells)
            yield place, {column: cell for column, cell in zip(header, cells, strict=True) if column}
    lost_quotes.check_pairs()
    if not header:
        raise errors.UserError(f"{name}: it is empty; a header with the columns' names is needed")


def _delimiter(source: _Lines, default: str) -> str:
    """Return the delimiter that a first line declares, which is taken, or else the one that the header has."""
    head = []
    while line := source.take():
        head.append(line)
        text = "".join(head)
        is_complete = text.strip() and not _OPEN_QUOTE.search(_QUOTED.sub("", text))
        if is_complete or len(text) >= _MAX_HEADER:
            break
    text = "".join(head)
    if declared := _DECLARED_DELIMITER.fullmatch(text):
        return declared[1]
    source.give_back(head)
    unquoted = _QUOTED.sub("", text)
    if default in unquoted:
        return default
    return next((mark for mark in ";\t" if mark in unquoted), default)


def _header(place: str, cells: list[str]) -> list[str]:
    """Return the names of the columns, each in one line and without what a reader cannot see around it.

    Raises:
        UserError: two columns then have one name, or names are in quotes that CSV does not know.
    """
    names = [re.sub(r"\s*[\r\n]\s*", " ", characters.stripped(cell)) for cell in cells]
    if any(map(_IN_OTHER_QUOTES.fullmatch, names)):
        raise errors.UserError(f'{place}: quotes around a cell must be ": {errors.join_names(names)}')
    if repeated := [name for name, count in collections.Counter(names).items() if name and count > 1]:
        raise errors.UserError(f"{place}: the header has {repeated[0]!r} more than once: {errors.join_names(cells)}")
    return names


def _is_header(place: str, cells: list[str], names: list[str]) -> bool:
    """Whether a record repeats the header, whose names are given as by `characters.plain`.

    Raises:
        UserError: it has the same names in another order, so the cells below it belong to other columns.
    """
    if len(cells) < 2 or len(cells[0]) > _MAX_NAME or characters.plain(cells[0]) not in names:
        return False
    given = [characters.plain(cell[:_MAX_NAME]) for cell in cells]
    if given != names and sorted(given) == sorted(names):
        raise errors.UserError(
            f"{place}: repeats the header with the columns in another order, so the rows below have other columns: split "
            "the file there"
        )
    return given == names


class _LostQuotes:
    """Warnings about cells of several lines that look like rows, so that a quote may be missing."""

    def __init__(self, delimiter: str):
        self._delimiter = delimiter
        self._known: dict[int, set[str]] = collections.defaultdict(set)  # Cells by column.
        self._pairs: list[tuple[str, list[tuple[int, str]]]] = []  # Places, and the columns of parts of a cell.

    def check(self, place: str, num_lines: int, cells: list[str]) -> None:
        """Warn if several lines in one cell of a record have as many delimiters as records."""
        if len(cells) < 2:
            return
        for index, cell in enumerate(cells):
            if len(cell) <= _MAX_NAME and len(self._known[index]) <= _MAX_KNOWN:
                self._known[index].add(cell)
        if num_lines == 1:
            return
        are_rows = any(_are_rows(cell, index, len(cells), self._delimiter) for index, cell in enumerate(cells))
        if are_rows or (self._delimiter == TAB and any(map(_is_block, cells))):
            self._warn(place, num_lines)
        elif num_lines == 2 and (parts := self._parts(cells)):
            self._pairs.append((place, parts))

    def check_pairs(self) -> None:
        """Warn of two lines in one cell if a part of it, read as a cell of another column, is one of other rows."""
        for place, parts in self._pairs:
            if any(part in self._known[column] and len(self._known[column]) <= _MAX_KNOWN for column, part in parts):
                self._warn(place, 2)

    def _parts(self, cells: list[str]) -> list[tuple[int, str]]:
        """Return the columns and texts of parts of a cell that are whole cells if its two lines end and begin rows."""
        for index, cell in enumerate(cells):
            first, *second = cell.splitlines()[:2] or [""]
            after = first.split(self._delimiter)[1:]
            before = second[0].split(self._delimiter)[:-1] if second else []
            if second and (len(after), len(before)) == (len(cells) - 1 - index, index):
                return [pair for pair in [*enumerate(before), *enumerate(after, index + 1)] if pair[1].strip()]
        return []

    def _warn(self, place: str, num_lines: int) -> None:
        message = "%s: one cell spans %d lines that look like rows: is a quote missing or too many?"
        logging.warning(message, place, num_lines)


def _are_rows(cell: str, index: int, width: int, delimiter: str) -> bool:
    """Whether the lines of the cell `index` of a record have as many delimiters as rows of `width` cells."""
    counts = [line.count(delimiter) for line in cell.splitlines()]
    if len(counts) < 3 or any(count != width - 1 for count in counts[1:-1]):
        return False
    return len(counts) >= _MANY_LINES or (counts[0], counts[-1]) == (width - 1 - index, index)


def _is_block(cell: str) -> bool:
    """Whether a cell holds both tabs and newlines."""
    return TAB in cell and bool(re.search("[\r\n]", cell))


def _content(line: str) -> str:
    """Return a line without its end."""
    return line[:-2] if line.endswith("\r\n") else line[:-1] if line.endswith(("\n", "\r")) else line
