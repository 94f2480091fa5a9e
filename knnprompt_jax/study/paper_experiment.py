"""Declaration of a table or figure of the paper: its options, its cells, and how its records are drawn."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd

from knnprompt_jax.cli import paper_settings as grids
from knnprompt_jax.methods import method
from knnprompt_jax.report import accuracies, drawing, page, published, records, results
from knnprompt_jax.report.records import Record
from knnprompt_jax.report.tables import Table
from knnprompt_jax.study import job_inputs, paper_cells

SPREAD = "Accuracy in %, mean ± sample standard deviation over seeds."
AXES = ("model", "m", "method")


@dataclasses.dataclass(frozen=True)
class Data:
    """The data of a section: our records (`results.frame`), the paper's numbers, and whether to draw figures."""

    name: str
    ours: pd.DataFrame
    paper: pd.DataFrame
    with_figures: bool = True


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The result of a check of finished records: its lines for the terminal, the conclusion first."""

    lines: tuple[str, ...]
    has_failed: bool = False

    def __str__(self) -> str:
        return "; ".join(self.lines)


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper, or several that come from the same runs.

    Attributes:
        name: its folder of records, its section and its file in `configs/`.
        title: the heading of its section.
        text: a description of the section.
        axes: the axes of its rows. Records with equal values differ in their seeds only.
        caption: the caption of its table of accuracies.
        figure: the caption of its figure, and its axes; None without a figure.
        make_figure: the function of `report.drawing` that draws the figure.
        draw: returns its tables and figures; by default the table of accuracies and the figure.
        settings: the class of its options.
        cells: yields the cells of one task and model, from the settings, the rows and M_T.
        count: replaces runs if no language model is required: maps the settings to a text for the terminal.
        check: checks the finished records.
    """

    name: str
    title: str
    text: str
    axes: tuple[str, ...] = AXES
    caption: str = SPREAD
    figure: tuple[str, drawing.Plot] | None = None
    make_figure: Callable[..., drawing.Figure] = drawing.curves
    draw: Callable[["Experiment", Data], tuple[list[Table], list[drawing.Figure]]] | None = None
    settings: type[grids.GridSettings] = grids.GridSettings
    cells: Callable[[Any, job_inputs.Rows, int], Iterator[paper_cells.GridCell]] = paper_cells.regimes
    count: Callable[[Any], str] | None = None
    check: Callable[[Sequence[Record]], Verdict] | None = None

    def before_writing(self, folder: pathlib.Path, record: Record, method_inputs: method.Inputs) -> None:
        """Write the files that belong to a record, before the record itself; most experiments have none."""

    def read(self, folder: pathlib.Path) -> Sequence[Any]:
        """Return the records in the experiment's folder; raise UserError on a file that is not a record."""
        return records.read_all(folder) if any(folder.glob("*.json")) else []

    def section(self, records: Sequence[Any], folder: pathlib.Path, with_figures: bool = True) -> page.Section:
        """Return the section of these records. Figures need matplotlib; tables do not."""
        del folder
        canonical = [dataclasses.replace(record, model=published.canonical(record.model)) for record in records]
        ours = with_columns(results.frame(canonical), self.axes)
        results.check(ours, ["task", *self.axes])
        paper = with_columns(published.of(self.name), self.axes)
        draw = self.draw or Experiment.draw_accuracies
        tables, drawings = draw(self, Data(self.name, results.with_best_template(ours), paper, with_figures))
        return page.Section(
            self.name,
            self.title,
            self.text,
            accuracies.facts(ours),
            tables=tuple(table for table in tables if table.rows),
            figures=tuple(figure for figure in drawings if figure.panels),
        )

    def draw_accuracies(self, data: Data) -> tuple[list[Table], list[drawing.Figure]]:
        """Return the table of accuracies, and the figure if there is one."""
        tables = [accuracies.build(data.name, self.caption, data.ours, data.paper, self.axes)]
        if not self.figure or not data.with_figures or data.ours.empty:
            return tables, []
        caption, plot = self.figure
        return tables, [self.make_figure(data.name, caption, data.ours, data.paper, plot)]


def with_columns(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return the frame with an empty column for each of these that it lacks."""
    return frame.reindex(columns=list(dict.fromkeys([*frame, *columns])))
