"""Aligned text tables for the terminal, mean ± spread, and cells that a spreadsheet reads as data."""

import csv
import io
import re
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from knnprompt_jax.common import errors

_FORMULA = re.compile(r"'*\s*[=+\-@]")


def to_cell(text: str) -> str:
    """Return the text, with a leading apostrophe if a spreadsheet would run it as a formula; numbers stay unchanged.

    A formula that has a leading apostrophe gets another one, because `from_cell` removes one.
    """
    if not _FORMULA.match(text):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def from_cell(text: str) -> str:
    """Invert `to_cell`."""
    return text[1:] if text.startswith("'") and to_cell(text[1:]) == text else text


def to_csv(rows: Iterable[Sequence[Any]], *, is_first: bool = True) -> bytes:
    """Return rows as CSV in UTF-8, with texts guarded by `to_cell`; a record ends in a carriage return and a line feed.

    Args:
        is_first: whether a file begins with these rows, and so with a byte order mark.
    """
    text = io.StringIO(newline="")
    csv.writer(text).writerows([to_cell(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    return text.getvalue().encode("utf-8-sig" if is_first else "utf-8", "backslashreplace")


def spread(values: Sequence[float]) -> str:
    """Return mean ± sample standard deviation (ddof = 1) of shares, in %; only the mean for one number."""
    mean = f"{100 * statistics.fmean(values):.1f}"
    return mean if len(values) < 2 else f"{mean} ± {100 * statistics.stdev(values):.1f}"


def render(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with a rule below the header; the first column is left-aligned, the others right-aligned.

    Line breaks and control characters in cells are escaped.
    """
    printable = [[errors.printable(cell, kept="") for cell in row] for row in [header, *rows]]
    widths = [max(map(len, column)) for column in zip(*printable, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
        padded[0] = cells[0].ljust(widths[0])
        return "  ".join(padded).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([line(printable[0]), rule, *map(line, printable[1:])])
