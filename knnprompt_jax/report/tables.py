"""A table of our scores, the paper's beside them and their difference; as CSV and text."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from knnprompt_jax.common import text_tables as terminal
from knnprompt_jax.report import names, results
from knnprompt_jax.report.results import Score

TRUNCATED = "†"
REUSED = "‡"
FOOTNOTES = {
    TRUNCATED: "more than 5 % of the prompts were cut from the left to fit the context",
    REUSED: "|D| = m leaves no anchors: the result of in-context learning is re-used, as in the paper",
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """Our score and the paper's.

    Attributes:
        marks: signs of `FOOTNOTES`.
        comparable: whether the difference of the scores has a meaning.
        digits: digits after the point; `paper_digits` are the paper's if it prints another number of them.
    """

    ours: Score | None = None
    paper: Score | None = None
    marks: str = ""
    comparable: bool = True
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
        return abs(self.difference) <= self.margin + 0.5 * 10 ** -(self.paper_digits or self.digits)

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
        difference = f"{self.difference:+.{self.digits}f}"
        return (difference if float(difference) else difference[1:]).replace("-", "−") + verdict

    @property
    def line(self) -> str:
        """All of the cell on one line: 53.8 ± 3.0 † (paper 60.0 ± 6.0, −6.2 ✗)."""
        ours = f"{self.text} {self.marks}".strip()
        paper = ", ".join(filter(None, (self.paper_text, self.difference_text)))
        return f"{ours} (paper {paper})" if paper else ours


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
    """

    name: str
    caption: str
    headers: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()

    @property
    def cells(self) -> list[Cell]:
        """The cells of all rows."""
        return [cell for row in self.rows for cell in row.cells]

    @property
    def footnotes(self) -> list[str]:
        """All texts below the table."""
        marks = {mark for cell in self.cells for mark in cell.marks}
        return [*self.notes, *(f"{mark} {text}." for mark, text in FOOTNOTES.items() if mark in marks)]


def pivot(
    ours: pd.DataFrame,
    paper: pd.DataFrame,
    axes: Sequence[str],
    value: Callable[[pd.DataFrame], Score | None],
    marks: Callable[[pd.DataFrame], str] = lambda runs: "",
    **options: Any,
) -> dict[tuple, Cell]:
    """Return the cell of each key that has a score; a key is a value on every axis, the last the column's.

    Args:
        ours: our records (`results.frame`).
        paper: the paper's numbers, in the column `score`.
        axes: columns of both frames.
        value: maps the records of a cell to their score.
        marks: maps the records of a cell to its marks.
        options: further fields of all cells.
    """
    runs = results.groups(ours, axes)
    printed = {key: numbers.score.iloc[0] for key, numbers in results.groups(paper, axes).items()}
    cells = {key: Cell(value(group), printed.get(key), marks(group), **options) for key, group in runs.items()}
    cells |= {key: Cell(None, score, **options) for key, score in printed.items() if key not in runs}
    return {key: cell for key, cell in cells.items() if cell.ours or cell.paper}


def build(
    name: str,
    caption: str,
    axes: Sequence[str],
    columns: Mapping[Any, str],
    cells: Mapping[tuple, Cell],
    notes: Sequence[str] = (),
) -> Table:
    """Return a table with a row per key, which is a value on every axis, in the order of the axes.

    Values on the first axis with a score of ours come before the others.

    Args:
        name: the name of the table.
        caption: its caption.
        axes: the axes of the rows.
        columns: the title of each column; columns without a cell are not shown.
        cells: the cells by (*key, column); missing ones are empty.
        notes: texts below the table.
    """
    with_cells = {key[-1] for key in cells}
    columns = {column: title for column, title in columns.items() if column in with_cells}
    with_runs = {key[0] for key, cell in cells.items() if cell.ours}
    rows = []
    keys = names.ordered_keys(axes, {key[:-1] for key in cells})
    for key in sorted(keys, key=lambda key: key[0] not in with_runs):
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


def to_csv(table: Table) -> str:
    """Return a line per cell, numbers to six digits."""
    lines = []
    for row, (index, column) in itertools.product(table.rows, enumerate(table.columns)):
        cell = row.cells[index]
        if cell.ours or cell.paper:
            texts = map(terminal.to_cell, (*row.headers, column))
            line: dict[str, Any] = dict(zip((*table.headers, "column"), texts, strict=True))
            for prefix, score in (("", cell.ours), ("paper ", cell.paper)):
                line |= {f"{prefix}{name}": getattr(score, name, None) for name in ("mean", "std", "count")}
            line |= {"difference": cell.difference, "two standard errors": cell.margin, "within": cell.within}
            lines.append(line | {"marks": cell.marks})
    return pd.DataFrame(lines).to_csv(index=False, float_format="%.6g", lineterminator="\n")


def to_text(table: Table) -> str:
    """Return the table as the page shows it, for a terminal."""
    rows = [[*row.headers, *(cell.line for cell in row.cells)] for row in table.rows]
    rendered = terminal.render([*table.headers, *table.columns], rows)
    return "\n\n".join([table.caption, rendered, *table.footnotes]) + "\n"
