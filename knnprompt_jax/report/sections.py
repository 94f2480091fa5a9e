"""A section of a page."""

import dataclasses
from collections.abc import Mapping

from knnprompt_jax.report import drawing, embedding
from knnprompt_jax.report.tables import Table

_NARROW = 40  # Characters.


@dataclasses.dataclass(frozen=True)
class Listing:
    """A table of texts."""

    caption: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def is_wide(self) -> bool:
        """Whether a cell is too long for a column of a phone's width."""
        return any(len(cell) > _NARROW for row in self.rows for cell in row)


@dataclasses.dataclass(frozen=True)
class Matrix:
    """Counts of pairs of classes, [row, column]."""

    caption: str
    labels: tuple[str, ...]
    counts_CC: tuple[tuple[int, ...], ...] = ()

    @property
    def rows(self) -> list[tuple[str, list[tuple[int, float]]]]:
        """Each row's label, and its counts with their shares of the row in %."""
        sums = (max(1, sum(counts)) for counts in self.counts_CC)
        lines = zip(self.labels, self.counts_CC, sums, strict=True)
        return [(label, [(count, 100 * count / whole) for count in counts]) for label, counts, whole in lines]


@dataclasses.dataclass(frozen=True)
class Section:
    """`facts` say what was run, name by name; `maps` are the interactive ones."""

    name: str
    title: str
    text: str
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tables: tuple[Table, ...] = ()
    listings: tuple[Listing, ...] = ()
    matrices: tuple[Matrix, ...] = ()
    figures: tuple[drawing.Figure, ...] = ()
    maps: tuple[embedding.Map, ...] = ()

    @property
    def verdicts(self) -> list[bool]:
        """Of every cell that can be judged, whether it lies within two standard errors of the paper's."""
        return [verdict for table in self.tables for cell in table.cells if (verdict := cell.within) is not None]
