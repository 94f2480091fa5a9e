"""What a table or figure of the paper declares: its runs, what the paper ran, and how its records are drawn."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ml_collections

from knnprompt_jax import errors, options
from knnprompt_jax.methods import method, registry
from knnprompt_jax.paper import cells as cells_lib
from knnprompt_jax.paper import provenance
from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.report import accuracy_table, curves, drawing, sections, tables
from knnprompt_jax.report.scores import Record
from knnprompt_jax.runs import material
from knnprompt_jax.runs import records as records_lib

SPREAD = "Accuracy in %, mean ± sample standard deviation over seeds."
Cells = Callable[..., Iterator[cells_lib.Cell]]
Drawn = tuple[Sequence[tables.Table], Sequence[drawing.Figure]]


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper, or several that are made of the same runs.

    Attributes:
      name: of its file, its folder of records and its section.
      title: the heading of its section.
      text: what the section shows.
      draw: its records → tables and figures.
      defaults: its options where they differ from those that `settings` declares.
      printed: what the paper ran where that differs from the defaults; what is empty the paper does not say.
      cells: the cells of one task and model, from the settings, the names of methods that read the model, the rows and M_T.
      settings: the declaration of its options.
      count: what it does in place of runs, if it needs no language model: settings → what the binary prints.
    """

    name: str
    title: str
    text: str
    draw: Callable[[Sequence[Any]], Drawn]
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    printed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    cells: Cells = cells_lib.regimes
    settings: type[settings_lib.GridSettings] = settings_lib.GridSettings
    count: Callable[[Any], str] | None = None

    def config(self) -> ml_collections.ConfigDict:
        """Its options with their defaults."""
        return options.config_of(self.settings, experiment=self.name, restore_dropped=True, **self.defaults)

    def cells_of(self, settings: settings_lib.GridSettings, rows: material.Rows, most: int) -> list[cells_lib.Cell]:
        """The cells of one task and model, whose context holds `most` demonstrations per class, each once."""
        names = [name for name in settings.method_names if not registry.get(name).own_model]
        return list(dict.fromkeys(self.cells(settings, names, rows, most)))

    def before_writing(self, folder: pathlib.Path, record: Record, context: method.Context) -> None:
        """Writes what stands beside a record, before the record itself; nothing unless a table needs it."""

    def read(self, folder: pathlib.Path) -> Sequence[Any]:
        """The records in the experiment's folder, none where there are none.

        Raises UserError on a file of another version or experiment.
        """
        records = records_lib.read_all(folder) if any(folder.glob("*.json")) else []
        for record in records:
            if record.experiment != self.name:
                raise errors.UserError(f"{folder}/{record.name}: a record of {record.experiment or 'no experiment'!r}")
        return records

    def section(self, records: Sequence[Any], folder: pathlib.Path) -> sections.Section:
        """What the page shows of the records in the experiment's folder."""
        del folder
        drawn_tables, figures = self.draw(records)
        printed = self.settings(experiment=self.name, **{**self.defaults, **self.printed})
        facts = provenance.facts(records, printed)
        return sections.Section(self.name, self.title, self.text, facts, tuple(drawn_tables), figures=tuple(figures))


def tabulated(*axes: str, caption: str = SPREAD) -> Callable[[Sequence[Record]], Drawn]:
    """Draws a table with a row for each place on these axes."""
    return lambda records: ([accuracy_table.build(records, axes, caption)], [])


def drawn(
    axes: Sequence[str], figure: Callable[..., drawing.Figure], caption: str, table: str = SPREAD, **options: Any
) -> Callable[[Sequence[Record]], Drawn]:
    """Draws a table as `tabulated` does, of caption `table`, and a figure by its name, caption, records and `options`."""
    return lambda records: (
        [accuracy_table.build(records, axes, table)],
        [figure(records[0].experiment, caption, records, **options)],
    )


def by_shots(figure: str, table: str = SPREAD) -> Callable[[Sequence[Record]], Drawn]:
    """Draws a table of methods by m and their curves; `figure` and `table` are the captions."""
    return drawn(("m", "method"), curves.figure, figure, table, plot=curves.Plot("m", curves.SHOTS))
