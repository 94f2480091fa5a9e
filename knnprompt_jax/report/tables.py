"""A table with ours, the paper's number beside it, and their difference; as CSV and Markdown."""

import csv
import dataclasses
import io
from collections.abc import Iterator

from knnprompt_jax import tables as terminal
from knnprompt_jax.report import scores
from knnprompt_jax.report.scores import Score

TRUNCATED = "†"
REUSED = "‡"
FOOTNOTES = {
    TRUNCATED: "more than 5 % of the prompts were cut from the left to fit the context",
    REUSED: "|D| = m leaves no anchors: the result of in-context learning is re-used, as in the paper",
}
_COLUMNS: tuple[str, ...] = ("mean", "std", "seeds", "paper", "paper std", "paper seeds")
_COLUMNS += ("difference", "two standard errors", "within", "marks")


@dataclasses.dataclass(frozen=True)
class Cell:
    """Ours and the paper's; `comparable` says that model, m and method are the same, so that a difference has a meaning."""

    ours: Score | None = None
    paper: Score | None = None
    comparable: bool = False
    marks: str = ""

    @property
    def difference(self) -> float | None:
        return self.ours.mean - self.paper.mean if self.comparable and self.ours and self.paper else None

    @property
    def margin(self) -> float | None:
        """Two standard errors of the difference."""
        if self.comparable and self.ours and self.paper:
            return scores.two_standard_errors(self.ours, self.paper)
        return None

    def within(self, digits: int) -> bool | None:
        """Whether the difference lies in the margin, give or take half a unit of the paper's last printed digit."""
        if self.difference is None or self.margin is None:
            return None
        return abs(self.difference) <= self.margin + 0.5 * 10**-digits


@dataclasses.dataclass(frozen=True)
class Row:
    """`digits` are those after the point, of ours as of the paper's."""

    headers: tuple[str, ...]
    cells: tuple[Cell, ...]
    digits: int = 1

    @property
    def verdicts(self) -> list[bool]:
        """Of every cell that can be judged, whether it lies within two standard errors of the paper's."""
        return [verdict for cell in self.cells if (verdict := cell.within(self.digits)) is not None]

    def show(self, score: Score) -> str:
        """Mean ± standard deviation, or the mean alone."""
        spread = "" if score.std is None else f" ± {score.std:.{self.digits}f}"
        return f"{score.mean:.{self.digits}f}{spread}".replace("-", "−")

    def signed(self, cell: Cell) -> str:
        """The difference with its sign, zero without one."""
        text = f"{cell.difference:+.{self.digits}f}"
        return text.replace("-", "−") if float(text) else text[1:]


@dataclasses.dataclass(frozen=True)
class Table:
    """`headers` name the columns of the rows' headers, `columns` those of the cells; `reference` says whose the paper's
    numbers are where they are no counterpart."""

    name: str
    caption: str
    headers: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    reference: str = ""

    @property
    def footnotes(self) -> list[str]:
        shown = "".join(cell.marks for cell in self.cells)
        return [f"{mark} {text}." for mark, text in FOOTNOTES.items() if mark in shown]

    @property
    def cells(self) -> list[Cell]:
        return [cell for row in self.rows for cell in row.cells]


def to_csv(table: Table) -> str:
    """A line for each cell, numbers unrounded."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*table.headers, "column", *_COLUMNS])
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            if cell.ours or cell.paper:
                values = ["" if value is None else value for value in _values(row, cell)]
                writer.writerow([*map(_unformula, row.headers), _unformula(column), *values])
    return file.getvalue()


def to_markdown(table: Table) -> str:
    """The table as the page shows it."""
    rows = [[*row.headers, *(_shown(row, cell) for cell in row.cells)] for row in table.rows]
    header, *lines = [list(map(_markdown, cells)) for cells in ((*table.headers, *table.columns), *rows)]
    body = terminal.render_markdown(header, lines, left=len(table.headers))
    notes = "".join(f"\n\n{note}" for note in [table.reference, *table.footnotes] if note)
    return f"**{table.caption}**\n\n{body}{notes}\n"


def _shown(row: Row, cell: Cell) -> str:
    ours = "–" if cell.ours is None else row.show(cell.ours) + cell.marks
    if cell.paper is None:
        return ours
    verdict = {None: "", True: " ✓", False: " ✗"}[cell.within(row.digits)]
    difference = "" if cell.difference is None else f", {row.signed(cell)}{verdict}"
    return f"{ours} (paper {row.show(cell.paper)}{difference})"


def _values(row: Row, cell: Cell) -> Iterator[float | int | str | None]:
    for score in (cell.ours, cell.paper):
        yield from (score.mean, score.std, score.count) if score else (None, None, None)
    yield from (cell.difference, cell.margin, cell.within(row.digits), cell.marks)


def _unformula(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in "=+-@" else text


def _markdown(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")
    return " ".join(escaped.split())
