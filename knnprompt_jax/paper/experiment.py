"""Declaration of a table or figure of the paper: its options, its cells, and how its records are drawn.

A section shows our numbers beside the paper's, lists what was run, and how that differs from the shipped config.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd

from knnprompt_jax import errors
from knnprompt_jax.methods import all_methods, method
from knnprompt_jax.paper import cells as cells_lib
from knnprompt_jax.report import accuracies, drawing, figures, names, overview, page, paired, published, results, tables
from knnprompt_jax.report import records as records_lib
from knnprompt_jax.report.results import Record
from knnprompt_jax.settings import grids, shared
from knnprompt_jax.study import job_inputs as inputs

SPREAD = "Accuracy in %, mean ± sample standard deviation over seeds."
_AXES = {  # The axis that an option lists values of.
    "models": "model",
    "tasks": "task",
    "methods": "method",
    "shots": "shots",
    "few_shots": "few_shots",
    "shares": "ratio",
    "prior_settings": "setting",
    "demo_shots": "demo_shots",
    "anchor_shots": "anchor_shots",
}
_MEANING_OF_ZERO = {"context": "the model's", "rows": "all"}
_COMPARED = ("label_token", "dtype", "deterministic")
Cells = Callable[[Any, inputs.Rows, int], Iterator[cells_lib.GridCell]]
Drawn = tuple[Sequence[tables.Table], Sequence[drawing.Figure]]


@dataclasses.dataclass(frozen=True)
class Data:
    """The data of a section: our records (`results.frame`), the paper's numbers, and whether to draw figures."""

    name: str
    ours: pd.DataFrame
    paper: pd.DataFrame = dataclasses.field(default_factory=lambda: published.of(""))
    with_figures: bool = True

    def with_axes(self, axes: Sequence[str]) -> "Data":
        """Return the data with an empty column for each axis that no record has."""
        return dataclasses.replace(self, ours=with_columns(self.ours, axes), paper=with_columns(self.paper, axes))


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The result of a check of finished records: its lines for the terminal, the conclusion first."""

    lines: tuple[str, ...]
    has_failed: bool = False

    def __str__(self) -> str:
        return "; ".join(self.lines)


def draw_nothing(data: Data) -> Drawn:
    """Return no table and no figure."""
    del data
    return [], []


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper, or several that come from the same runs.

    Attributes:
        name: its folder of records, its section and its file in `configs/`.
        title: the heading of its section.
        text: a description of the section.
        draw: maps the data to tables and figures; by default to none.
        settings: the class of its options.
        cells: yields the cells of one task and model, from the settings, the rows and M_T.
        count: replaces runs if no language model is required: maps the settings to a text for the terminal.
        check: checks the finished records.
    """

    name: str
    title: str
    text: str
    draw: Callable[[Data], Drawn] = draw_nothing
    settings: type[grids.GridSettings] = grids.GridSettings
    cells: Cells = cells_lib.regimes
    count: Callable[[Any], str] | None = None
    check: Callable[[Sequence[Record]], Verdict] | None = None

    @functools.cached_property
    def shipped(self) -> grids.GridSettings:
        """The options that repeat the paper's runs."""
        return grids.shipped(self.name)

    def before_writing(self, folder: pathlib.Path, record: Record, method_inputs: method.Inputs) -> None:
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

    def section(self, records: Sequence[Any], folder: pathlib.Path, with_figures: bool = True) -> page.Section:
        """Return the section of these records; without records it shows only the paper's numbers.

        Figures need matplotlib; tables do not.
        """
        del folder
        canonical = [dataclasses.replace(record, model=published.canonical(record.model)) for record in records]
        ours = results.frame(canonical)
        results.check(ours, ["model", "task", "method", "m", "regime", *results.cell_axes(ours)])
        paper = with_columns(published.of(self.name), list(ours))
        drawn, drawings = self.draw(Data(self.name, results.settle_templates(ours), paper, with_figures))
        facts = overview.facts(ours)
        if differences := self._differences(ours):
            facts["Differences from the shipped config"] = "; ".join(differences)
        return page.Section(
            self.name,
            self.title,
            self.text,
            facts,
            findings=[row for table in drawn for row in table.findings],
            tables=tuple(drawn),
            figures=tuple(drawings),
        )

    def _differences(self, ours: pd.DataFrame) -> list[str]:
        """Return the differences of the records from the shipped config, each once; none without records."""
        if ours.empty:
            return []
        differences = list(_missing(ours, self.shipped))
        for record in ours.record:
            differences += _record_differences(record, self.shipped)
        return list(dict.fromkeys(differences))


def with_columns(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return the frame with an empty column for each of these that it lacks."""
    return frame.reindex(columns=list(dict.fromkeys([*frame, *columns])))


def tabulated(*axes: str, caption: str = SPREAD) -> Callable[[Data], Drawn]:
    """Return a function that draws a table with a row per value of these axes, and a table of paired differences."""

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
        built, _ = tabulated(*axes, caption=table)(data)
        if not data.with_figures or data.ours.empty:
            return built, []
        drawing = figure(data.name, caption, data.ours, data.paper, **options)
        return built, [drawing] if drawing.panels else []

    return draw


def by_shots(figure: str, table: str = SPREAD) -> Callable[[Data], Drawn]:
    """Return a function that draws a table of methods by m and their curves; `figure` and `table` are the captions."""
    return drawn(("m", "method"), figures.curves, figure, table, plot=figures.Plot("m", figures.SHOTS))


def _record_differences(record: Record, shipped: grids.GridSettings) -> Iterator[str]:
    """Yield the settings and options of a record whose shipped values are different."""
    expected = {**shipped.to_dict(), **inputs.row_options(shipped)}
    expected |= {name: default for name, default in shared.MODEL_DEFAULTS.items() if expected[name] is None}
    found = {**record.source, **{name: record.settings[name] for name in _COMPARED if name in record.settings}}
    if record.method in all_methods.METHODS:
        draw = cells_lib.Draw(record.seed, record.shots, record.demo_shots)
        usual = cells_lib.GridCell(record.method, draw, tuple(record.cell.items())).options(shipped).to_dict()
        for name, value in record.settings.get("options", {}).items():
            title = f"{names.method(record.method)}: {name}"
            expected[title] = usual.get(name)
            found[title] = value
    for name, value in found.items():
        if value != expected[name]:
            yield f"{name} = {_in_words(name, value)} instead of {_in_words(name, expected[name])}"


def _in_words(name: str, value: Any) -> str:
    if value == 0 and name in _MEANING_OF_ZERO:
        return _MEANING_OF_ZERO[name]
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value) or "none"


def _missing(ours: pd.DataFrame, shipped: grids.GridSettings) -> Iterator[str]:
    """Yield the models, methods, shots and other values of the config that no record has, and a lack of seeds."""
    is_extra = ours.regime != shipped.regime
    fills = (ours.m == results.FILLS_CONTEXT) & (ours.method.map(results.rows_used) == "demonstrations")
    ours = ours.assign(few_shots=ours.shots.where(is_extra), shots=ours.shots.mask(is_extra | fills))
    for option, axis in _AXES.items():
        values = getattr(shipped, option, ())
        if axis == "model":
            values = [published.canonical(value) for value in values]
        missing = [names.text(axis, value) for value in values if value not in set(ours.get(axis, ()))]
        if missing:
            what = option if axis in ("model", "task", "method") else names.HEADERS[axis]
            separator = " / " if axis == "method" else ", "
            yield f"without {what} {separator.join(missing)}"
    searched_once = all(results.rows_used(method) == "draws" for method in ours.method)
    expected = 1 if searched_once else len(shipped.seeds)
    if ours.seed.nunique() < expected:
        yield f"{ours.seed.nunique()} of {expected} seeds"
