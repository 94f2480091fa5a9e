"""A table of our scores, the paper's beside them and their difference; as CSV, Markdown and text."""

import dataclasses
import functools
import math
import string
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from knnprompt_jax import text_tables as terminal
from knnprompt_jax.report import names
from knnprompt_jax.report.results import Score

TRUNCATED = "more than 5 % of the prompts were cut from the left to fit the context"
REUSED = "|D| = m leaves no anchors: the result of in-context learning is re-used, as in the paper"
_SYMBOLS = {TRUNCATED: "†", REUSED: "‡"}


@dataclasses.dataclass(frozen=True)
class Cell:
    """Our score and the paper's.

    Attributes:
        comparable: whether model, m and method are the same, so that the difference has a meaning.
        marks: the texts of the cell's footnotes.
        digits: digits after the point; `paper_digits` are the paper's if it prints another number of them.
    """

    ours: Score | None = None
    paper: Score | None = None
    comparable: bool = False
    marks: tuple[str, ...] = ()
    digits: int = 1
    paper_digits: int | None = None

    @property
    def difference(self) -> float | None:
        """Our mean minus the paper's; None if they are not comparable."""
        return self.ours.mean - self.paper.mean if self.comparable and self.ours and self.paper else None

    @property
    def margin(self) -> float | None:
        """Two standard errors of the difference; None if either mean has no spread."""
        scores = (self.ours, self.paper)
        variances = [score.std**2 / score.count for score in scores if score and score.std is not None]
        return None if self.difference is None or len(variances) < 2 else 2 * math.sqrt(sum(variances))

    @property
    def within(self) -> bool | None:
        """Whether the difference lies within the margin, allowing for half a unit of the paper's last printed digit."""
        if self.difference is None or self.margin is None:
            return None
        return abs(self.difference) <= self.margin + 0.5 * 10**-self.digits

    @property
    def text(self) -> str:
        """Our score; a dash if there is none."""
        return "–" if self.ours is None else self.ours.text(self.digits)

    @property
    def paper_text(self) -> str:
        """The paper's number as printed; empty if there is none."""
        return "" if self.paper is None else self.paper.text(self.paper_digits or self.digits)

    @property
    def difference_text(self) -> str:
        """The signed difference and its verdict; empty if there is no difference."""
        if self.difference is None:
            return ""
        verdict = {None: "", True: " ✓", False: " ✗"}[self.within]
        return signed(self.difference, self.digits) + verdict


@dataclasses.dataclass(frozen=True)
class TableRow:
    """A line of a table: its headers, and a cell per column."""

    headers: tuple[str, ...]
    cells: tuple[Cell, ...]


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of scores.

    Attributes:
        headers: the names of the columns with the rows' headers.
        columns: the names of the columns with cells.
        notes: texts below the table.
        findings: rows for the page's summary (`paired.build`).
    """

    name: str
    caption: str
    headers: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()
    findings: tuple[tuple[str, ...], ...] = ()

    @property
    def cells(self) -> list[Cell]:
        """The cells of all rows."""
        return [cell for row in self.rows for cell in row.cells]

    @property
    def is_ours(self) -> bool:
        """Whether a cell has a number of ours; otherwise only the paper's are shown."""
        return any(cell.ours for cell in self.cells)

    @functools.cached_property
    def symbols(self) -> dict[str, str]:
        """The sign of each footnote; footnotes without a sign of their own get letters in the order of the cells."""
        letters = (first + last for first in ("", *string.ascii_lowercase) for last in string.ascii_lowercase)
        marks = dict.fromkeys(mark for cell in self.cells for mark in cell.marks)
        return {mark: _SYMBOLS.get(mark) or next(letters) for mark in marks}

    @property
    def footnotes(self) -> list[str]:
        """All texts below the table."""
        origin = [] if self.is_ours else ["No run of ours: only the paper's numbers."]
        return [*origin, *self.notes, *(f"{symbol} {mark}." for mark, symbol in self.symbols.items())]

    def signs(self, cell: Cell) -> str:
        """Return the signs of a cell's footnotes."""
        return ",".join(self.symbols[mark] for mark in cell.marks)

    def texts(self, cell: Cell) -> tuple[str, str, str]:
        """Return what a cell shows: our score, the paper's and their difference; the last two may be empty.

        A table without any score of ours shows the paper's instead of ours.
        """
        if not self.is_ours:
            return cell.paper_text or "–", "", ""
        return cell.text, cell.paper_text, cell.difference_text


def build(
    name: str,
    caption: str,
    axes: Sequence[str],
    columns: Mapping[Any, str],
    cells: Mapping[tuple, Cell],
    keys: Sequence[tuple] = (),
    notes: Sequence[str] = (),
) -> Table:
    """Return a table with a row per key, which is a value on every axis.

    Args:
        columns: the title of each column; columns without a cell are left out.
        cells: the cells by (*key, column); missing ones are empty.
        keys: the rows in order; by default those of the cells, ordered by the axes.
    """
    keys = keys or names.ordered_keys(axes, {key[:-1] for key in cells})
    with_cells = {key[-1] for key in cells}
    columns = {column: title for column, title in columns.items() if column in with_cells}
    rows = []
    for key in keys:
        headers = tuple(map(names.text, axes, key))
        rows.append(TableRow(headers, tuple(cells.get((*key, column), Cell()) for column in columns)))
    headers = tuple(names.HEADERS.get(axis, axis) for axis in axes)
    return Table(name, caption, headers, tuple(columns.values()), tuple(rows), tuple(notes))


def ours_only(table: Table) -> Table:
    """Return the table without the rows and columns that have no score of ours."""
    rows = [row for row in table.rows if any(cell.ours for cell in row.cells)]
    indices = [index for index in range(len(table.columns)) if any(row.cells[index].ours for row in rows)]
    return dataclasses.replace(
        table,
        columns=tuple(table.columns[index] for index in indices),
        rows=tuple(TableRow(row.headers, tuple(row.cells[index] for index in indices)) for row in rows),
    )


def signed(value: float, digits: int = 1) -> str:
    """Return a difference with its sign; zero has none."""
    text = f"{value:+.{digits}f}"
    return text.replace("-", "−") if float(text) else text[1:]


def to_csv(table: Table) -> str:
    """Return a line per cell, numbers to six digits."""
    lines = []
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            if cell.ours or cell.paper:
                names_of_cell = map(terminal.to_cell, (*row.headers, column))
                verdict = (cell.difference, cell.margin, cell.within, table.signs(cell))
                lines.append([*names_of_cell, *_numbers(cell.ours), *_numbers(cell.paper), *verdict])
    scores = ("mean", "std", "seeds", "paper", "paper std", "paper seeds")
    verdicts = ("difference", "two standard errors", "within", "marks")
    frame = pd.DataFrame(lines, columns=[*table.headers, "column", *scores, *verdicts])
    return frame.to_csv(index=False, float_format="%.6g", lineterminator="\n")


def _numbers(score: Score | None) -> tuple[float | None, float | None, int | None]:
    return (score.mean, score.std, score.count) if score else (None, None, None)


def to_markdown(table: Table) -> str:
    """Return the table as the page shows it, in Markdown."""
    header, *rows = [list(map(escape, cells)) for cells in _lines(table)]
    body = terminal.render_markdown(header, rows, left=len(table.headers))
    return "\n\n".join([f"**{escape(table.caption)}**", body, *map(escape, table.footnotes)]) + "\n"


def to_text(table: Table) -> str:
    """Return the table as the page shows it, for a terminal."""
    header, *rows = _lines(table)
    return "\n\n".join([table.caption, terminal.render(header, rows), *table.footnotes]) + "\n"


def _lines(table: Table) -> list[list[str]]:
    """Return the header line and the rows as texts."""
    lines = [[*table.headers, *table.columns]]
    for row in table.rows:
        lines.append([*row.headers, *(_line_text(table, cell) for cell in row.cells)])
    return lines


def _line_text(table: Table, cell: Cell) -> str:
    """Return a cell on one line: 53.8 ± 3.0 † (paper 60.0 ± 6.0, −6.2 ✗)."""
    ours, paper, difference = table.texts(cell)
    signs = table.signs(cell)
    text = f"{ours} {signs}" if signs else ours
    if not paper:
        return text
    return f"{text} (paper {paper}, {difference})" if difference else f"{text} (paper {paper})"


def escape(text: str) -> str:
    """Return the text as Markdown shows it, on one line."""
    escaped = text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")
    return " ".join(escaped.split())
