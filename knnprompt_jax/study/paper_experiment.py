"""The declaration of a table or figure of the paper: its options, its cells, and how its records are drawn.

A cell is a method, its draw of train rows and its rows to classify; it becomes one record. Draws are the published
ones, all rows as demonstrations, or draws in which one class is rare.
"""

import dataclasses
import functools
import itertools
import pathlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from knnprompt_jax.classifier.experts import views
from knnprompt_jax.cli import paper_settings as grids
from knnprompt_jax.common import errors
from knnprompt_jax.common import options as options_lib
from knnprompt_jax.datastore import distances
from knnprompt_jax.methods import all_methods, knn
from knnprompt_jax.methods import method as method_lib
from knnprompt_jax.report import accuracies, drawing, page, published, records, results
from knnprompt_jax.report.records import Record
from knnprompt_jax.report.tables import Table
from knnprompt_jax.study import job_inputs
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.task import Example, Task

SPREAD = "Accuracy in %, mean ± sample standard deviation over seeds."
AXES = ("model", "m", "method")
REUSED = "re-uses in-context learning: |D| = m"
BALANCED = 0.5  # The share λ of balanced rows.
_UPPER_BOUND = "demonstration_upper_bound"
# kNN Prompting without the released limit of k to the anchors per class. Its records have keys of their own.
_ANY_K = dataclasses.replace(
    all_methods.get("knn"),
    code_suffix=" with any k",
    predict=lambda inputs, options: knn.vote(inputs, options, options.k),
)


@dataclasses.dataclass(frozen=True)
class Draw:
    """A draw of `shots` train rows per class, of which `demo_shots` are demonstrations: all, some or none.

    Attributes:
        seed: the seed of the draw.
        shots: train rows per class.
        demo_shots: demonstrations per class.
        share: the share of the task's last class in all rows drawn, demonstrations included; their number stays the
            same. None draws equally many rows of each class.
    """

    seed: int
    shots: int
    demo_shots: int
    share: float | None = None


@dataclasses.dataclass(frozen=True)
class GridCell:
    """A method, its train rows and the rows to classify.

    Attributes:
        method: the name of the method.
        draw: the train rows.
        axes: the cell's value on each axis of the grid; an axis with the name of an option of the method sets it.
        test_share: the share of the task's last class in the rows to classify; None leaves them unchanged.
    """

    method: str
    draw: Draw
    axes: tuple[tuple[str, Any], ...] = ()
    test_share: float | None = None

    @property
    def reuses_icl(self) -> bool:
        """Whether all shots are demonstrations and the method has no anchors, as in the paper's footnote."""
        no_anchors = self.draw.demo_shots == self.draw.shots
        return no_anchors and all_methods.get(self.method).rows_used not in ("demonstrations", "train")

    @property
    def runs_as(self) -> method_lib.Method:
        """The method that runs."""
        if self.reuses_icl:
            return all_methods.get("icl")
        return _ANY_K if "k" in dict(self.axes) else all_methods.get(self.method)

    def options(self, settings: grids.GridSettings) -> options_lib.Options:
        """Return the grid's options of the method, with the values of axes and the grid's direction of divergences."""
        options = self.runs_as.options(settings)
        names = {field.name for field in dataclasses.fields(options)}
        changes = {name: value for name, value in self.axes if name in names}
        if "distance" in names:
            changes["distance"] = distances.with_direction(options.distance, settings.direction)
        return dataclasses.replace(options, **changes)


def cells_by_regime(settings: grids.GridSettings, rows: job_inputs.Rows, max_demo_shots: int) -> Iterator[GridCell]:
    """Yield a cell for each regime, number of shots, method and seed. `max_demo_shots` is M_T."""
    del rows
    for regime, shots in settings.regime_shots:
        for name in settings.methods:
            drawn_shots, demo_shots = _shots(all_methods.get(name), regime, shots, max_demo_shots)
            # Beside the full regime, the few-shot regime goes no further than the context does.
            if regime != settings.regime and demo_shots > max_demo_shots:
                continue
            for seed in settings.seeds:
                yield GridCell(name, Draw(seed, drawn_shots, demo_shots), (("regime", regime),))


def _shots(method: method_lib.Method, regime: str, shots: int, max_demo_shots: int) -> tuple[int, int]:
    """Return the train rows per class that a method draws, and how many of them are demonstrations."""
    if method.rows_used == "demonstrations":
        demo_shots = shots if regime == results.FEW_SHOT else max_demo_shots
        return demo_shots, demo_shots
    return shots, min(shots, 1 if regime == results.FEW_SHOT else max_demo_shots)


def cells_with_one_upper_bound(
    settings: grids.GridSettings, rows: job_inputs.Rows, max_demo_shots: int
) -> Iterator[GridCell]:
    """Yield the cells of all regimes; the upper bound is searched for with the first seed only, as published."""
    for cell in cells_by_regime(settings, rows, max_demo_shots):
        if cell.method != _UPPER_BOUND or cell.draw.seed == settings.seeds[0]:
            yield cell


def cells_by_prior(settings: grids.PriorSettings, rows: job_inputs.Rows, max_demo_shots: int) -> Iterator[GridCell]:
    """Yield each cell with the positive class rare in the train rows (A), the test rows (B) or both (C), at each λ.

    λ is the positive class's share of all train rows, demonstrations included, or of the test rows. The other rows have
    λ = 0.5: the test rows in A, the train rows in B.
    """
    for setting, share in itertools.product(settings.prior_settings, settings.shares):
        train_share = BALANCED if setting == "B" else share
        test_share = BALANCED if setting == "A" else share
        for cell in cells_by_regime(settings, rows, max_demo_shots):
            draw = dataclasses.replace(cell.draw, share=train_share)
            axes = (*cell.axes, ("setting", setting), ("ratio", share))
            yield dataclasses.replace(cell, draw=draw, axes=axes, test_share=test_share)


def cells_by_share(settings: grids.ImbalanceSettings, rows: job_inputs.Rows, max_demo_shots: int) -> Iterator[GridCell]:
    """Yield each cell at each share of the rare class in all train rows, demonstrations included."""
    for share in settings.shares:
        for cell in cells_by_regime(settings, rows, max_demo_shots):
            draw = dataclasses.replace(cell.draw, share=share)
            yield dataclasses.replace(cell, draw=draw, axes=(*cell.axes, ("ratio", share)))


def cells_by_split(settings: grids.SplitSettings, rows: job_inputs.Rows, max_demo_shots: int) -> Iterator[GridCell]:
    """Yield every |D| and |A| whose sum the context holds."""
    del rows
    for name, seed, demo_shots, anchor_shots in itertools.product(
        settings.methods, settings.seeds, settings.demo_shots, settings.anchor_shots
    ):
        if demo_shots + anchor_shots <= max_demo_shots:
            draw = Draw(seed, demo_shots + anchor_shots, demo_shots)
            yield GridCell(name, draw, (("anchor_shots", anchor_shots),))


def cells_by_k(settings: grids.GridSettings, rows: job_inputs.Rows, max_demo_shots: int) -> Iterator[GridCell]:
    """Yield kNN Prompting with every k up to the number of anchors, and other methods unchanged."""
    for cell in cells_by_regime(settings, rows, max_demo_shots):
        if cell.method != "knn":
            yield cell
            continue
        for k in range(1, len(split(rows, cell.draw).anchors) + 1):
            yield dataclasses.replace(cell, axes=(*cell.axes, ("k", k)))


@functools.cache
def split(rows: job_inputs.Rows, draw: Draw) -> splits.FewShotSplit:
    """Return the rows of a draw.

    Without anchors, all shots are demonstrations. With a share and anchors, the demonstrations stay balanced, and the
    rare class has at least one anchor.

    Raises:
        UserError: the task has too few rows, or there is a share but the task does not have two classes.
    """
    task = rows.task
    draw_split = functools.partial(splits.draw, rows.train, task, seed=draw.seed)
    if draw.share is None and draw.demo_shots < draw.shots:
        return draw_split(shots=draw.shots, demo_shots=draw.demo_shots)
    expected = dict.fromkeys(task.labels, draw.shots)
    if draw.share is not None:
        check_binary(task)
        rare = max(1, round(draw.share * 2 * draw.shots))
        expected = dict(zip(task.labels, (2 * draw.shots - rare, rare), strict=True))
    shots = max(expected.values())
    if draw.demo_shots == draw.shots:
        drawn = draw_split(shots=shots + 1, demo_shots=shots)  # A published draw has anchors.
        demonstrations = _first_of_classes(drawn.demonstrations, expected)
        anchors: tuple[Example, ...] = ()
    else:
        drawn = draw_split(shots=shots, demo_shots=draw.demo_shots)
        demonstrations = tuple(drawn.demonstrations)
        num_anchors = {label: max(1, number - draw.demo_shots) for label, number in expected.items()}
        anchors = _first_of_classes(drawn.anchors, num_anchors)
    counts = {}
    warnings = []
    for label, number in expected.items():
        sizes = [sum(row.label == label for row in part) for part in (demonstrations, anchors)]
        counts[label] = splits.ClassCounts(drawn.class_counts[label].train, *sizes)
        if sum(sizes) < number:
            warnings.append(f"task {task.name!r}: class {label!r} has {sum(sizes)} of the {number} rows asked for")
    return dataclasses.replace(
        drawn,
        demonstrations=demonstrations,
        anchors=anchors,
        shots=draw.shots,
        demo_shots=draw.demo_shots,
        class_counts=counts,
        warnings=tuple(warnings),
    )


def _first_of_classes(rows: Sequence[Example], counts: Mapping[str, int]) -> tuple[Example, ...]:
    """Return the first rows of each label, in order; `counts` has their numbers."""
    return tuple(rows[index] for index in views.first_per_class(rows, range(len(rows)), counts))


def evaluation(rows: job_inputs.Rows, share: float | None, seed: int) -> Sequence[Example]:
    """Return the rows to classify.

    With a share, rows of one class are dropped at random, so that the task's last class has this share.
    """
    if share is None:
        return rows.evaluation
    check_binary(rows.task)
    last = [row for row in rows.evaluation if row.label == rows.task.labels[-1]]
    others = [row for row in rows.evaluation if row.label != rows.task.labels[-1]]
    num_last = max(1, round(len(others) * share / (1 - share)))
    num_others = len(others)
    if num_last > len(last):
        num_last = len(last)
        num_others = max(1, round(len(last) * (1 - share) / share))
    generator = random.Random(seed)
    sampled = [*generator.sample(last, num_last), *generator.sample(others, num_others)]
    return sorted(sampled, key=lambda row: row.row)


def check_binary(task: Task) -> None:
    """Raise UserError unless the task has two classes, so that one of them can be made rare."""
    if task.num_classes != 2:
        raise errors.UserError(f"task {task.name!r} has {task.num_classes} classes; choose tasks with two classes")


@dataclasses.dataclass(frozen=True)
class Data:
    """The data of a section: our records (`results.frame`), the paper's numbers, and whether to draw figures."""

    name: str
    ours: pd.DataFrame
    paper: pd.DataFrame
    with_figures: bool = True


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper, or several that come from the same runs. Subclasses override methods.

    Attributes:
        name: its folder of records, its section and its file in `configs/`.
        title: the heading of its section.
        text: a description of the section.
        axes: the axes of its rows. Records with equal values differ in their seeds only.
        caption: the caption of its table of accuracies.
        figure: the caption of its figure, and its axes; None without a figure.
        make_figure: the function of `report.drawing` that draws the figure.
        settings: the class of its options.
        cells: yields the cells of one task and model, from the settings, the rows and M_T.
    """

    name: str
    title: str
    text: str
    axes: tuple[str, ...] = AXES
    caption: str = SPREAD
    figure: tuple[str, drawing.Plot] | None = None
    make_figure: Callable[..., drawing.Figure] = drawing.curves
    settings: type[grids.GridSettings] = grids.GridSettings
    cells: Callable[[Any, job_inputs.Rows, int], Iterator[GridCell]] = cells_by_regime

    def before_writing(self, folder: pathlib.Path, record: Record, method_inputs: method_lib.Inputs) -> None:
        """Write the files that belong to a record, before the record itself; most experiments have none."""

    def read(self, folder: pathlib.Path) -> Sequence[Any]:
        """Return the records in the experiment's folder; raise UserError on a file that is not a record."""
        return records.read_all(folder) if folder.is_dir() else []

    def check(self, folder: pathlib.Path) -> str:
        """Check the finished records; return a text for the terminal, or raise UserError if they fail."""
        del folder
        return ""

    def section(self, records: Sequence[Any], folder: pathlib.Path, with_figures: bool = True) -> page.Section:
        """Return the section of these records. Figures need matplotlib; tables do not."""
        del folder
        renamed = [dataclasses.replace(record, model=published.paper_name(record.model)) for record in records]
        ours = with_columns(results.frame(renamed), self.axes)
        results.check(ours, ["task", *self.axes])
        paper = with_columns(published.of(self.name), self.axes)
        data = Data(self.name, results.with_best_template(ours), paper, with_figures)
        tables, drawings = self.tables_and_figures(data)
        return page.Section(
            self.name,
            self.title,
            self.text,
            accuracies.facts(ours),
            tables=tuple(table for table in tables if table.rows),
            figures=tuple(figure for figure in drawings if figure.panels),
        )

    def tables_and_figures(self, data: Data) -> tuple[list[Table], list[drawing.Figure]]:
        """Return the tables and figures: by default the table of accuracies, and the figure if there is one."""
        tables = [accuracies.build(data.name, self.caption, data.ours, data.paper, self.axes)]
        if not self.figure or not data.with_figures or data.ours.empty:
            return tables, []
        caption, plot = self.figure
        return tables, [self.make_figure(data.name, caption, data.ours, data.paper, plot)]


def with_columns(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return the frame with an empty column for each of these that it lacks."""
    return frame.reindex(columns=list(dict.fromkeys([*frame, *columns])))
