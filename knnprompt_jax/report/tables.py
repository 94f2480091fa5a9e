"""A table with ours, the paper's number beside it, and their difference; as CSV and Markdown."""

import csv
import dataclasses
import functools
import io
import string
from collections.abc import Iterator

from knnprompt_jax import tables as terminal
from knnprompt_jax.report import scores
from knnprompt_jax.report.scores import Score

TRUNCATED = "more than 5 % of the prompts were cut from the left to fit the context"
REUSED = "|D| = m leaves no anchors: the result of in-context learning is re-used, as in the paper"
_SYMBOLS = {TRUNCATED: "†", REUSED: "‡"}
_COLUMNS: tuple[str, ...] = ("mean", "std", "seeds", "paper", "paper std", "paper seeds")
_COLUMNS += ("difference", "two standard errors", "within", "marks")


@dataclasses.dataclass(frozen=True)
class Cell:
    """Ours and the paper's; `comparable` says that model, m and method are the same, so that a difference has a meaning.

    `marks` are the texts of its footnotes; `digits` are those after the point, `paper_digits` the paper's where it prints others.
    """

    ours: Score | None = None
    paper: Score | None = None
    comparable: bool = False
    marks: tuple[str, ...] = ()
    digits: int = 1
    paper_digits: int | None = None

    @property
    def difference(self) -> float | None:
        return self.ours.mean - self.paper.mean if self.comparable and self.ours and self.paper else None

    @property
    def margin(self) -> float | None:
        """Two standard errors of the difference."""
        if self.comparable and self.ours and self.paper:
            return scores.two_standard_errors(self.ours, self.paper)
        return None

    @property
    def within(self) -> bool | None:
        """Whether the difference lies in the margin, give or take half a unit of the paper's last printed digit."""
        if self.difference is None or self.margin is None:
            return None
        return abs(self.difference) <= self.margin + 0.5 * 10**-self.digits

    @property
    def shown(self) -> str:
        return "–" if self.ours is None else _show(self.ours, self.digits)

    @property
    def paper_shown(self) -> str:
        """The paper's number as it is printed; empty where there is none."""
        return "" if self.paper is None else _show(self.paper, self.paper_digits or self.digits)

    @property
    def difference_shown(self) -> str:
        """The difference with its sign, zero without one, and the verdict; empty where there is none."""
        if self.difference is None:
            return ""
        text = f"{self.difference:+.{self.digits}f}"
        verdict = {None: "", True: " ✓", False: " ✗"}[self.within]
        return (text.replace("-", "−") if float(text) else text[1:]) + verdict


@dataclasses.dataclass(frozen=True)
class TableRow:
    """A line of a table: what names it, and a cell for each column."""

    headers: tuple[str, ...]
    cells: tuple[Cell, ...]


@dataclasses.dataclass(frozen=True)
class Table:
    """`headers` name the columns of the rows' headers, `columns` those of the cells; `notes` stand below."""

    name: str
    caption: str
    headers: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()

    @property
    def cells(self) -> list[Cell]:
        return [cell for row in self.rows for cell in row.cells]

    @functools.cached_property
    def symbols(self) -> dict[str, str]:
        """The sign of each footnote: letters in the order of the cells for those that have none of their own."""
        marks = list(dict.fromkeys(mark for cell in self.cells for mark in cell.marks))
        letters = iter(
            [*string.ascii_lowercase, *(a + b for a in string.ascii_lowercase for b in string.ascii_lowercase)]
        )
        return {mark: _SYMBOLS.get(mark) or next(letters) for mark in marks}

    @property
    def footnotes(self) -> list[str]:
        """All that is said below the table."""
        return [*self.notes, *(f"{symbol} {mark}." for mark, symbol in self.symbols.items())]

    def signs(self, cell: Cell) -> str:
        """The signs of a cell's footnotes."""
        return ",".join(self.symbols[mark] for mark in cell.marks)


def _show(score: Score, digits: int) -> str:
    """Mean ± standard deviation, or the mean alone."""
    spread = "" if score.std is None else f" ± {score.std:.{digits}f}"
    note = f" ({score.note})" if score.note else ""
    return f"{score.mean:.{digits}f}{spread}{note}".replace("-", "−")


def to_csv(table: Table) -> str:
    """A line for each cell, numbers to six digits."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*table.headers, "column", *_COLUMNS])
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            if cell.ours or cell.paper:
                writer.writerow([*map(_unformula, (*row.headers, column)), *_values(table, cell)])
    return file.getvalue()


def to_markdown(table: Table) -> str:
    """The table as the page shows it."""
    rows = [[*row.headers, *(_in_markdown(table, cell) for cell in row.cells)] for row in table.rows]
    header, *lines = [list(map(_markdown, cells)) for cells in ((*table.headers, *table.columns), *rows)]
    body = terminal.render_markdown(header, lines, left=len(table.headers))
    notes = "".join(f"\n\n{_markdown(note)}" for note in table.footnotes)
    return f"**{_markdown(table.caption)}**\n\n{body}{notes}\n"


def _in_markdown(table: Table, cell: Cell) -> str:
    ours = " ".join(filter(None, (cell.shown, table.signs(cell))))
    if cell.paper is None:
        return ours
    return f"{ours} (paper {', '.join(filter(None, (cell.paper_shown, cell.difference_shown)))})"


def _values(table: Table, cell: Cell) -> Iterator[str | int | bool]:
    for score in (cell.ours, cell.paper):
        yield from (_number(score.mean), _number(score.std), score.count) if score else ("", "", "")
    yield from (_number(cell.difference), _number(cell.margin), "" if cell.within is None else cell.within)
    yield table.signs(cell)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _unformula(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in "=+-@" else text


def _markdown(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")
    return " ".join(escaped.split())
