"""A section of a page."""

import dataclasses
from collections.abc import Mapping

from knnprompt_jax.report import drawing, embedding
from knnprompt_jax.report.tables import Table


@dataclasses.dataclass(frozen=True)
class Listing:
    """A table of texts."""

    caption: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclasses.dataclass(frozen=True)
class Section:
    """`facts` say what was run, name by name; `maps` are the interactive ones."""

    name: str
    title: str
    text: str
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tables: tuple[Table, ...] = ()
    listings: tuple[Listing, ...] = ()
    figures: tuple[drawing.Figure, ...] = ()
    maps: tuple[embedding.Map, ...] = ()

    @property
    def verdicts(self) -> list[bool]:
        """Of every cell that can be judged, whether it lies within two standard errors of the paper's."""
        return [verdict for table in self.tables for cell in table.cells if (verdict := cell.within) is not None]
