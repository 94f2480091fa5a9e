"""Declaration of a table or figure of the paper: its runs, and how its records are drawn beside the paper's numbers.

A section lists what was run, and how that differs from the runs of the shipped config.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd

from knnprompt_jax import errors, options
from knnprompt_jax.methods import method, registry
from knnprompt_jax.paper import cells as cells_lib
from knnprompt_jax.report import accuracies, drawing, figures, names, overview, page, paired, published, results, tables
from knnprompt_jax.report.results import Record
from knnprompt_jax.runs import inputs
from knnprompt_jax.runs import records as records_lib
from knnprompt_jax.settings import grids, shared

SPREAD = "Accuracy in %, mean ± sample standard deviation over seeds."
_AXES = {  # The axis that an option lists values of.
    **{"models": "model", "tasks": "task", "methods": "method", "shots": "shots", "few_shots": "few_shots"},
    **{"shares": "ratio", "prior_settings": "setting", "demo_shots": "demo_shots", "anchor_shots": "anchor_shots"},
}
_OF_ZERO = {"context": "the model's", "rows": "all"}  # What a 0 means.
_COMPARED = ("truncation", "label_token", "dtype", "deterministic", "batch", "mesh", "datastore")
Cells = Callable[..., Iterator[cells_lib.GridCell]]
Drawn = tuple[Sequence[tables.Table], Sequence[drawing.Figure]]


@dataclasses.dataclass(frozen=True)
class Data:
    """The data of a section: our records (`results.frame`) and the paper's numbers."""

    name: str
    ours: pd.DataFrame
    paper: pd.DataFrame = dataclasses.field(default_factory=lambda: published.of(""))

    def with_axes(self, axes: Sequence[str]) -> "Data":
        """Return the data with an empty column for each axis that no record has."""
        ours, paper = (frame.reindex(columns=list(dict.fromkeys([*frame, *axes]))) for frame in (self.ours, self.paper))
        return dataclasses.replace(self, ours=ours, paper=paper)


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper, or several that come from the same runs; `grids.GRIDS` has its options.

    Attributes:
      name: its folder of records and its section.
      title: the heading of its section.
      text: a description of the section.
      draw: data → tables and figures.
      cells: the cells of one task and model, from the settings, the names of the methods that read the model, the rows and M_T.
      count: replaces runs if no language model is needed: settings → text for the terminal.
      check: a verdict on the finished records.
    """

    name: str
    title: str
    text: str
    draw: Callable[[Data], Drawn]
    cells: Cells = cells_lib.regimes
    count: Callable[[Any], str] | None = None
    check: Callable[[Sequence[Record]], str] | None = None

    @functools.cached_property
    def shipped(self) -> grids.GridSettings:
        """The options that repeat the paper's runs."""
        return options.from_config(grids.kind(self.name), grids.config(self.name))

    def before_writing(self, folder: pathlib.Path, record: Record, context: method.Context) -> None:
        """Write the files that belong to a record, before the record itself; most experiments have none."""

    def read(self, folder: pathlib.Path) -> Sequence[Any]:
        """Return the records in the experiment's folder; raise UserError on a file of another version or experiment."""
        records = records_lib.read_all(folder) if any(folder.glob("*.json")) else []
        for record in records:
            if record.experiment != self.name:
                raise errors.UserError(
                    f"{folder}/{record.file_name}: a record of {record.experiment or 'no experiment'!r}"
                )
        return records

    def section(self, records: Sequence[Any], folder: pathlib.Path) -> page.Section:
        """Return the section of these records; without records it shows the paper's numbers alone."""
        del folder
        ours = results.frame(
            [dataclasses.replace(record, model=published.canonical(record.model)) for record in records]
        )
        results.check(ours, ["model", "task", "method", "m", "regime", *results.cell_axes(ours)])
        paper = published.of(self.name)
        paper = paper.reindex(columns=list(dict.fromkeys([*paper, *ours])))
        drawn, drawings = self.draw(Data(self.name, results.settle_templates(ours), paper))
        findings = [row for table in drawn for row in table.findings]
        facts = overview.facts(ours)
        found = (text for record in ours.record for text in _record_differences(record, self.shipped))
        if len(ours) and (differences := [*_missing(ours, self.shipped), *found]):
            facts["Differences from the shipped config"] = "; ".join(dict.fromkeys(differences))
        return page.Section(
            self.name, self.title, self.text, facts, findings, tables=tuple(drawn), figures=tuple(drawings)
        )


def tabulated(*axes: str, caption: str = SPREAD) -> Callable[[Data], Drawn]:
    """Return a function that draws a table with a row per place on these axes, and kNN Prompting's paired differences."""

    def draw(data: Data) -> Drawn:
        data = data.with_axes(axes)
        built = [accuracies.build(data.name, data.ours, axes, caption, data.paper)]
        if len(data.ours):
            built.append(paired.build(data.name, data.ours, accuracies.axes_of(axes, data.ours, data.paper)))
        return [table for table in built if table.rows], []

    return draw


def drawn(
    axes: Sequence[str], figure: Callable[..., drawing.Figure], caption: str, table: str = SPREAD, **options: Any
) -> Callable[[Data], Drawn]:
    """Return a function that draws the tables of `tabulated` with caption `table`, and a figure with `options`."""

    def draw(data: Data) -> Drawn:
        data = data.with_axes(axes)
        found = tabulated(*axes, caption=table)(data)[0]
        drawings = [figure(data.name, caption, data.ours, data.paper, **options)] if len(data.ours) else []
        return found, [drawn for drawn in drawings if drawn.panels]

    return draw


def by_shots(figure: str, table: str = SPREAD) -> Callable[[Data], Drawn]:
    """Return a function that draws a table of methods by m and their curves; `figure` and `table` are the captions."""
    return drawn(("m", "method"), figures.curves, figure, table, plot=figures.Plot("m", figures.SHOTS))


def _record_differences(record: Record, shipped: grids.GridSettings) -> Iterator[str]:
    """Yield the settings and options of a record whose shipped values are different."""
    expected = {**shipped.to_dict(), **inputs.source_of(shipped)}
    expected |= {name: default for name, default in shared.EXECUTION.items() if expected[name] is None}
    values = {**record.source, **{name: record.settings[name] for name in _COMPARED if name in record.settings}}
    if record.method in registry.METHODS:
        draw = cells_lib.Draw(record.seed, record.shots, record.demo_shots)
        usual = cells_lib.GridCell(record.method, draw, tuple(record.cell.items())).options(shipped).to_dict()
        for name, value in record.settings.get("options", {}).items():
            title = f"{names.method(record.method)}: {name}"
            expected[title], values[title] = usual.get(name), value
    for name, value in values.items():
        if isinstance(value, dict):  # A deterministic record names only what can change it.
            expected[name] = {key: expected[name][key] for key in value}
        if value != expected[name]:
            yield f"{name} = {_in_words(name, value)} instead of {_in_words(name, expected[name])}"


def _in_words(name: str, value: Any) -> str:
    if value == 0 and name in _OF_ZERO:
        return _OF_ZERO[name]
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value) or "none"


def _missing(ours: pd.DataFrame, shipped: grids.GridSettings) -> Iterator[str]:
    """Yield the models, methods, numbers of shots and other values that the config has and no record; and fewer seeds."""
    is_extra = ours.regime != shipped.regime
    ours = ours.assign(few_shots=ours.shots.where(is_extra), shots=ours.shots.mask(is_extra))
    for option, axis in _AXES.items():
        wanted = [published.canonical(value) if axis == "model" else value for value in getattr(shipped, option, ())]
        if missing := [names.text(axis, value) for value in wanted if value not in set(ours.get(axis, ()))]:
            what = option if axis in ("model", "task", "method") else names.HEADERS[axis]
            yield f"without {what} {(' / ' if axis == 'method' else ', ').join(missing)}"
    searched_once = all(results.rows_used(method) == "draws" for method in ours.method)
    if ours.seed.nunique() < (expected := 1 if searched_once else len(shipped.seeds)):
        yield f"{ours.seed.nunique()} of {expected} seeds"
