"""Records of CSV and TSV files: cells below a header, one record at a time, each with the number of its first line.

In CSV, a cell in quotes may hold delimiters, quotes (doubled) and newlines; blanks before its first quote do not count.
A record that breaks these rules is a problem of its first line only: reading resumes at the next line.

In TSV, quotes are text, except around a whole cell as spreadsheets write it, perhaps after blanks. Such a cell may hold
tabs or newlines if its record has the right number of cells only then.
"""

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
_OPEN_QUOTE = re.compile(r'(?:^|[,;\t])"[^"]*\Z')  # A cell whose quote is not closed.
_QUOTED = re.compile(r'"[^"]*"')
_OTHER_QUOTES = "'`´‘’‚‹›“”„«»"
_IN_OTHER_QUOTES = re.compile(rf"\s*[{_OTHER_QUOTES}].*[{_OTHER_QUOTES}]\s*", re.DOTALL)  # A cell.
_OTHER_QUOTE = re.compile(rf"(?:^|[,;\t])\s*([{_OTHER_QUOTES}])")  # One at the start of a cell.
_UNSEEN = r"[^\S\r\n]|[\u00ad\u200b-\u200f\u2060\ufeff]"  # What may precede the quote of a cell.


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
    source = _Lines(lines, name)
    delimiter = _delimiter(source, delimiter)
    rules = _Tsv() if delimiter == TAB else _Csv(delimiter)
    header = _read_header(source, rules)
    checks = _Checks(header, delimiter)
    while line := source.take():
        place = source.place
        first = source.number
        try:
            cells = rules.record(source, line, len(header))
            if not _content(line) or (len(header) > 1 and _are_blank(cells)):
                continue
            checks.check(place, line, cells, num_lines=source.number - first + 1)
        except _Malformed as problem:
            yield place, errors.UserError(f"{place}: {problem}")
        else:
            yield place, {column: cell for column, cell in zip(header, cells, strict=True) if column}
    checks.check_pairs()


class _Malformed(Exception):
    """A record that is no row; the message says why."""


class _Lines:
    """Lines with their numbers; lines that were taken can be given back."""

    def __init__(self, lines: Iterator[str], name: str):
        self.name = name
        self.number = 0
        self._lines = lines
        self._given_back: list[str] = []

    @property
    def place(self) -> str:
        """The file and the number of the line that was taken last."""
        return f"{self.name}:{self.number}"

    def take(self) -> str:
        """Return the next line; "" at the end."""
        line = self._given_back.pop() if self._given_back else next(self._lines, "")
        self.number += bool(line)
        return line

    def give_back(self, lines: list[str]) -> None:
        """Let the next calls of `take` return these lines."""
        self._given_back += reversed(lines)
        self.number -= len(lines)


def _delimiter(source: _Lines, default: str) -> str:
    """Return the delimiter that a first line declares, which is taken, or else the one that the header has."""
    head = []
    text = ""
    while len(text) < _MAX_HEADER and (line := source.take()):
        head.append(line)
        text += line
        if text.strip() and not _OPEN_QUOTE.search(_QUOTED.sub("", text)):
            break
    if declared := _DECLARED_DELIMITER.fullmatch(text):
        return declared[1]
    source.give_back(head)
    unquoted = _QUOTED.sub("", text)
    return next((mark for mark in (default, ";", TAB) if mark in unquoted), default)


class _Csv:
    """The rules of CSV."""

    def __init__(self, delimiter: str):
        end = re.escape(delimiter)
        blank = rf"(?:(?!{end})(?:{_UNSEEN}))"
        # Where blanks precede the first quote, blanks may also follow the last.
        quoted = rf'({blank}+)?"([^"]*(?:""[^"]*)*)"(?(1){blank}*)(?={end}|\Z)'
        self._cell = re.compile(rf'{quoted}|(?!{blank}*")[^{end}]*')
        self._delimiter = delimiter
        self._last_suspect = 0  # The last line of a malformed record: the lines after its first are read once more.

    def record(self, lines: _Lines, line: str, width: int) -> list[str]:
        """Return the cells of the record that begins with a line that was taken; raise _Malformed otherwise."""
        number = lines.number
        taken = [line]
        try:
            cells = self.split(line, width)
            while cells is None:
                self._take_until_quote(lines, taken)
                cells = self.split("".join(taken), width)
        except _Malformed:
            self._last_suspect = max(self._last_suspect, lines.number)
            lines.give_back(taken[1:])
            raise
        if number <= self._last_suspect and sum(each.count('"') for each in taken) % 2:
            raise _Malformed("not CSV: an odd number of quotes, after a quote that was not closed")
        return cells

    def split(self, lines: str, width: int) -> list[str] | None:
        """Return the cells of lines, or None if a quote is open at their end; raise _Malformed otherwise.

        A quote that is open after `width` cells (0: any number) is malformed, so that lost quotes take linear time.
        """
        text = _content(lines)
        if '"' not in text:
            return text.split(self._delimiter)
        cells: list[str] = []
        start = 0
        while start <= len(text):
            found = self._cell.match(text, start)
            if not found:
                if _has_closing_quote(text[start:].partition('"')[2]):
                    raise _Malformed(f"not CSV: {self._delimiter!r} expected after a closing quote")
                if width and len(cells) == width:
                    raise _Malformed(f"not CSV: a quote is open after {width} cells, the number of the header's")
                return None
            cells.append(_text(found))
            start = found.end() + 1
        return cells

    def unquoted(self, cell: str) -> str:
        """Return the text of a cell without delimiters, of which quotes are part unless they are around all of it."""
        found = self._cell.fullmatch(cell)
        return _text(found) if found else cell

    def is_open(self, cell: str) -> bool:
        """Whether a cell without delimiters begins with a quote that it does not close."""
        return cell.count('"') % 2 == 1 and not self._cell.match(cell)

    def _take_until_quote(self, lines: _Lines, taken: list[str]) -> None:
        """Take the lines of an open cell up to the one that closes it; raise _Malformed if there is none."""
        size = sum(map(len, taken))
        while line := lines.take():
            taken.append(line)
            size += len(line)
            if size > _MAX_RECORD:
                raise _Malformed(f"not CSV: a quote is not closed within {_MAX_RECORD:,} characters")
            if _has_closing_quote(line):
                return
        raise _Malformed("not CSV: unexpected end of data: a quote is not closed")


class _Tsv:
    """The rules of TSV."""

    def __init__(self) -> None:
        self._csv = _Csv(TAB)
        self._has_warned = False

    def record(self, lines: _Lines, line: str, width: int) -> list[str]:
        """Return the cells of the record that begins with a line that was taken; `width` 0 is any number of cells."""
        cells = _content(line).split(TAB)
        if '"' not in line:
            return cells
        is_open = any(map(self._csv.is_open, cells))
        if width != 1 and (is_open or len(cells) != width):
            taken = [line]
            quoted = self._quoted(lines, taken, width)
            if quoted and len(quoted) == (width or len(quoted)):
                return quoted
            lines.give_back(taken[1:])
        if is_open and not self._has_warned:
            self._has_warned = True
            logging.warning("%s: a quote that its cell does not close is read as text", lines.place)
        return list(map(self._csv.unquoted, cells))

    def _quoted(self, lines: _Lines, taken: list[str], width: int) -> list[str] | None:
        """Return the cells by the rules of CSV; None if a cell then holds lines that are rows by themselves.

        Lines that are taken are appended to `taken`.
        """
        try:
            cells = self._csv.split(taken[0], width)
            is_first_row = _has_row(taken, width)
            while cells is None and (line := lines.take()):
                taken.append(line)
                if _has_closing_quote(line):
                    cells = self._csv.split("".join(taken), width)
                elif TAB in line and (is_first_row or _has_row([line], width)):
                    return None
        except _Malformed:
            return None
        return None if any(map(_is_block, cells or ())) and _has_row(taken[:-1], width) else cells


def _has_row(lines: list[str], width: int) -> bool:
    """Whether one of the lines has the right number of cells, none of them empty."""
    return any(len(cells := _content(line).split(TAB)) == width and all(cells) for line in lines)


def _has_closing_quote(text: str) -> bool:
    """Whether a text within quotes has a quote that closes them: other quotes are doubled."""
    return '"' in text.replace('""', "")


def _text(cell: re.Match[str]) -> str:
    """Return the text of a cell that `_Csv` has found."""
    return cell[0] if cell[2] is None else cell[2].replace('""', '"')


def _read_header(source: _Lines, rules: _Csv | _Tsv) -> list[str]:
    """Return the names of the columns, each in one line and without what a reader cannot see around it.

    Raises:
        UserError: there is no header, it is malformed, two columns have one name, or names are in quotes that CSV does
            not know.
    """
    cells: list[str] = []
    while _are_blank(cells):
        line = source.take()
        if not line:
            raise errors.UserError(f"{source.name}: it is empty; a header with the columns' names is needed")
        place = source.place
        try:
            cells = rules.record(source, line, 0)
        except _Malformed as problem:  # Otherwise the next row would become the header.
            raise errors.UserError(f"{place}: {problem}") from None
    names = [re.sub(r"\s*[\r\n]\s*", " ", characters.stripped(cell)) for cell in cells]
    if any(map(_IN_OTHER_QUOTES.fullmatch, names)):
        raise errors.UserError(f'{place}: quotes around a cell must be ": {errors.join_names(names)}')
    if repeated := errors.repeated(filter(None, names)):
        raise errors.UserError(f"{place}: the header has {repeated[0]!r} more than once: {errors.join_names(cells)}")
    return names


class _Checks:
    """Checks of rows against the header, and warnings about quotes that are probably lost."""

    def __init__(self, header: list[str], delimiter: str):
        self._names = [characters.plain(column) for column in header]
        self._delimiter = delimiter
        self._has_warned = False  # Of other quotes.
        self._known: list[set[str]] = [set() for _ in header]  # The cells of each column.
        self._pairs: list[tuple[str, list[tuple[int, str]]]] = []  # Places, and the columns of parts of a cell.

    def check(self, place: str, line: str, cells: list[str], num_lines: int) -> None:
        """Check a record, which begins with `line` and spans `num_lines`.

        Raises:
            _Malformed: another number of cells than the header has, or the header once more.
            UserError: it is the header in another order, so the cells below it belong to other columns.
        """
        if len(cells) != len(self._names):
            quote = _OTHER_QUOTE.search(line)
            hint = f'; quotes around a cell must be ", not {quote[1]}' if quote else ""
            counted = f"{len(cells)} cell{'s' * (len(cells) != 1)}"
            raise _Malformed(f"{counted}, but the header has {len(self._names)}{hint}")
        self._check_header(place, cells)
        if len(cells) > 1:
            self._check_quotes(place, cells)
            self._check_lines(place, cells, num_lines)

    def check_pairs(self) -> None:
        """Warn of two lines in one cell if a part of it, read as a cell of another column, is one of other rows."""
        for place, parts in self._pairs:
            if any(part in self._known[column] and len(self._known[column]) <= _MAX_KNOWN for column, part in parts):
                _warn_of_rows(place, 2)

    def _check_header(self, place: str, cells: list[str]) -> None:
        if len(cells[0]) > _MAX_NAME or characters.plain(cells[0]) not in self._names:
            return
        given = [characters.plain(cell[:_MAX_NAME]) for cell in cells]
        if len(given) == 1:
            logging.warning("%s: a text that is the header's name: is the file made of several?", place)
        elif given == self._names:
            raise _Malformed("repeats the header: is the file made of several?")
        elif sorted(given) == sorted(self._names):
            raise errors.UserError(
                f"{place}: repeats the header with the columns in another order, so the rows below have other columns: split "
                "the file there"
            )

    def _check_quotes(self, place: str, cells: list[str]) -> None:
        if not self._has_warned and all(map(_IN_OTHER_QUOTES.fullmatch, filter(None, cells))):
            self._has_warned = True
            mark = "".join(cells).lstrip()[:1]
            logging.warning('%s: %s is read as text: quotes around a cell must be "', place, mark)

    def _check_lines(self, place: str, cells: list[str], num_lines: int) -> None:
        """Warn of lines in one cell that have as many delimiters as records; `check_pairs` warns of two such lines."""
        for known, cell in zip(self._known, cells, strict=True):
            if len(cell) <= _MAX_NAME and len(known) <= _MAX_KNOWN:
                known.add(cell)
        if num_lines == 1:
            return
        rows = {index: lines for index, cell in enumerate(cells) if self._are_rows(lines := cell.splitlines(), index)}
        if max(map(len, rows.values()), default=0) > 2 or (self._delimiter == TAB and any(map(_is_block, cells))):
            _warn_of_rows(place, num_lines)
        elif num_lines == 2 and rows:
            index, (first, second) = next(iter(rows.items()))
            parts = [*enumerate(second.split(self._delimiter)[:-1])]
            parts += enumerate(first.split(self._delimiter)[1:], index + 1)
            self._pairs.append((place, [(column, part) for column, part in parts if part.strip()]))

    def _are_rows(self, lines: list[str], index: int) -> bool:
        """Whether the lines of the cell `index` have as many delimiters as records that begin and end beside it."""
        last = len(self._names) - 1
        counts = [line.count(self._delimiter) for line in lines]
        if len(counts) < 2 or any(count != last for count in counts[1:-1]):
            return False
        return len(counts) >= _MANY_LINES or (counts[0], counts[-1]) == (last - index, index)


def _warn_of_rows(place: str, num_lines: int) -> None:
    message = "%s: one cell spans %d lines that look like rows: is a quote missing or too many?"
    logging.warning(message, place, num_lines)


def _is_block(cell: str) -> bool:
    """Whether a cell holds both tabs and newlines."""
    return TAB in cell and bool(re.search("[\r\n]", cell))


def _are_blank(cells: list[str]) -> bool:
    return all(map(characters.is_blank, cells))


def _content(line: str) -> str:
    """Return a line without its end."""
    return line.removesuffix("\n").removesuffix("\r")
