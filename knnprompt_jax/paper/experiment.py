"""What a table or figure of the paper declares: its runs, and how its records are drawn beside the paper's numbers."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from knnprompt_jax import errors, options
from knnprompt_jax.methods import method, registry
from knnprompt_jax.paper import cells as cells_lib
from knnprompt_jax.paper import provenance, reductions
from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.report import accuracy_table, curves, drawing, paired, published, scores, sections, tables, templates
from knnprompt_jax.report.scores import Record
from knnprompt_jax.runs import material
from knnprompt_jax.runs import records as records_lib

SPREAD = "Accuracy in %, mean ± sample standard deviation over seeds."
Cells = Callable[..., Iterator[cells_lib.GridCell]]
Drawn = tuple[Sequence[tables.Table], Sequence[drawing.Figure]]


@dataclasses.dataclass(frozen=True)
class Shown:
    """What a section is drawn from: records, which may be none, the paper's numbers, and what marks a cell of some records."""

    name: str
    records: Sequence[Any]
    paper: Sequence[published.Printed] = ()
    marks: accuracy_table.Marks = lambda records: ()


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper, or several that are made of the same runs.

    Attributes:
      name: its folder of records and its section.
      title: the heading of its section.
      text: what the section shows.
      draw: what is shown → tables and figures.
      defaults: its options where they differ from those that `settings` declares.
      cells: the cells of one task and model, from the settings, the names of methods that read the model, the rows and M_T.
      settings: the declaration of its options.
      matches: the values of its own axes at which a run is one of the paper's tables of accuracies; None if none ever is.
      count: what it does in place of runs, if it needs no language model: settings → what the binary prints.
      check: what it says of its records when all have run, if anything.
    """

    name: str
    title: str
    text: str
    draw: Callable[[Shown], Drawn]
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    cells: Cells = cells_lib.regimes
    settings: type[settings_lib.GridSettings] = settings_lib.GridSettings
    matches: Mapping[str, Any] | None = dataclasses.field(default_factory=dict)
    count: Callable[[Any], str] | None = None
    check: Callable[[Sequence[Record]], str] | None = None

    def config(self) -> dict[str, Any]:
        """The values that replace the defaults of its options."""
        return {"experiment": self.name, "restore_dropped": True, **self.defaults}

    @functools.cached_property
    def shipped(self) -> settings_lib.GridSettings:
        """The options with which the paper's runs are repeated."""
        return options.from_config(self.settings, self.config())

    def cells_of(self, settings: settings_lib.GridSettings, rows: material.Rows, most: int) -> list[cells_lib.GridCell]:
        """The cells of one task and model, whose context holds `most` demonstrations per class, each once."""
        names = [name for name in settings.method_names if not registry.get(name).own_model]
        return list(dict.fromkeys(self.cells(settings, names, rows, most)))

    @property
    def writes_beside(self) -> bool:
        """Whether it writes something beside its records."""
        return type(self).before_writing is not Experiment.before_writing

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
        """What the page shows of the records in the experiment's folder, and of the paper's numbers where there are none."""
        del folder
        records = [dataclasses.replace(record, model=published.canonical(record.model)) for record in records]
        fewer = reductions.Reductions(records, self.shipped)
        drawn, figures = self.draw(Shown(self.name, templates.settled(records), self.paper(records), fewer.of_cell))
        facts = provenance.facts(records, fewer.common)
        return sections.Section(self.name, self.title, self.text, facts, tuple(drawn), figures=tuple(figures))

    def paper(self, records: Sequence[Record]) -> list[published.Printed]:
        """The paper's accuracies of what the config that ships runs, and of what these records ran."""
        if self.matches is None:
            return []
        usual = self.shipped
        methods = dict.fromkeys(name for name in (*usual.method_names, *(record.method for record in records)))
        places = {(record.cell.get("regime", usual.regime), scores.axis(record, "m")) for record in records}
        found = published.matching(
            self.name,
            [name for name in methods if name in registry.METHODS],
            [*usual.model_names, *(record.model for record in records)],
            [*usual.task_names, *(record.task for record in records)],
            {*places, *usual.regime_shots, (usual.regime, None)},
        )
        return [dataclasses.replace(number, cell={**number.cell, **self.matches}) for number in found]


def tabulated(*axes: str, caption: str = SPREAD, tests: bool = True) -> Callable[[Shown], Drawn]:
    """Draws a table with a row for each place on these axes and, of what ran, kNN Prompting's differences in pairs."""

    def draw(shown: Shown) -> Drawn:
        drawn = [accuracy_table.build(shown.name, shown.records, axes, caption, shown.paper, shown.marks)]
        if shown.records and tests:
            places = accuracy_table.axes_of(axes, shown.records, shown.paper)
            drawn += filter(None, [paired.table(shown.name, shown.records, places, shown.marks)])
        return ([table for table in drawn if table.rows], [])

    return draw


def drawn(
    axes: Sequence[str], figure: Callable[..., drawing.Figure], caption: str, table: str = SPREAD, **options: Any
) -> Callable[[Shown], Drawn]:
    """Draws tables as `tabulated` does, of caption `table`, and a figure by its name, caption, records, `options` and the paper's."""

    def draw(shown: Shown) -> Drawn:
        figures = [figure(shown.name, caption, shown.records, paper=shown.paper, **options)] if shown.records else []
        return tabulated(*axes, caption=table)(shown)[0], [each for each in figures if each.panels]

    return draw


def by_shots(figure: str, table: str = SPREAD) -> Callable[[Shown], Drawn]:
    """Draws a table of methods by m and their curves; `figure` and `table` are the captions."""
    return drawn(("m", "method"), curves.figure, figure, table, plot=curves.Plot("m", curves.SHOTS))
