"""Aligned text tables for the terminal, mean ± spread, and cells that a spreadsheet takes for data."""

import statistics
from collections.abc import Sequence

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def to_cell(text: str) -> str:
    """The text, behind an apostrophe where a spreadsheet would run it as a formula; numbers stay as they are.

    So are formulas that stand behind apostrophes already, for `from_cell` takes one off.
    """
    if not text.lstrip("'").startswith(_FORMULA):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def from_cell(text: str) -> str:
    """The text that `to_cell` was given."""
    return text[1:] if text.startswith("'") and to_cell(text[1:]) == text else text


def spread(values: Sequence[float]) -> str:
    """Mean ± sample standard deviation (ddof = 1) of some shares, in %; the mean alone for one number."""
    mean = f"{100 * statistics.fmean(values):.1f}"
    return mean if len(values) < 2 else f"{mean} ± {100 * statistics.stdev(values):.1f}"


def render(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with a rule below the header; the first column is left-aligned, the others right-aligned."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        first, *rest = (
            cell.ljust(width) if not column else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "  ".join([first, *rest]).rstrip()

    return "\n".join([line(header), "  ".join("-" * width for width in widths), *map(line, rows)])


def render_markdown(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """The same as a Markdown table, whose first `left` columns are left-aligned."""
    ruled = ["---"] * left + ["---:"] * (len(header) - left)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [header, ruled, *rows])
