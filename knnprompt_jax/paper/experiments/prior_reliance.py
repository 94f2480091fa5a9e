"""Reliance on prior knowledge (table): the positive class rare in the train rows (A), in the test rows (B), in both (C).

λ is the positive class's share of all train rows, demonstrations included; in test, rows of either class are left out until it has
its share. Where λ is not skewed it is 0.5, of A's test rows and B's train rows too. The paper does not say m; 16 is ours.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

from knnprompt_jax import errors, options
from knnprompt_jax.paper import cells, experiment
from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.report import accuracy_table, curves, names, published, scores, templates
from knnprompt_jax.report.published import Printed
from knnprompt_jax.report.scores import Record, Score
from knnprompt_jax.report.tables import Cell, Table, TableRow
from knnprompt_jax.runs import inputs

_NAME = "prior_reliance"
_BALANCED = 0.5
_IN_TRAIN, _IN_TEST = ("A", "C"), ("B", "C")
_SETTINGS = ("A", "B", "C")


@dataclasses.dataclass(frozen=True)
class Settings(settings_lib.GridSettings):
    """Those of a grid of skewed train and test rows."""

    prior_settings: str = options.option("A,B,C", "A: rare in train; B: rare in test; C: both. With commas.")
    shares: tuple[float, ...] = options.option(
        (0.125, 0.25, 0.375, 0.5), "Of the positive class.", least=0.001, most=0.5
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in settings_lib.split_names(self.prior_settings):
            if name not in _SETTINGS:
                raise errors.UserError(f"prior_settings={self.prior_settings!r}: choose from {', '.join(_SETTINGS)}")


def _cells(settings: Settings, names: Sequence[str], rows: inputs.Rows, most: int) -> Iterator[cells.GridCell]:
    for setting, share, cell in itertools.product(
        settings_lib.split_names(settings.prior_settings), settings.shares, cells.regimes(settings, names, rows, most)
    ):
        yield dataclasses.replace(
            cell,
            draw=dataclasses.replace(cell.draw, share=share if setting in _IN_TRAIN else _BALANCED),
            axes=(*cell.axes, ("setting", setting), ("ratio", share)),
            test_share=share if setting in _IN_TEST else _BALANCED,
        )


def _draw(shown: experiment.Shown) -> experiment.Drawn:
    plot = curves.Plot("ratio", "λ, share of the positive class", panel=("setting",), log=False, average=False)
    caption = "Accuracy averaged over tasks. A: train skewed; B: test skewed; C: both."
    paper = list(_paper())
    figures = [curves.figure(_NAME, caption, shown.records, plot, paper)] if shown.records else []
    return [_table(shown, paper)], figures


def _paper() -> Iterator[Printed]:
    """The paper's numbers, each of which is an average over tasks."""
    table = published.tables()[_NAME]
    tasks = tuple(task.lower() for task in table["tasks"])
    for row in table["rows"]:
        method = next(name for name in _METHODS if published.is_printed_as(name, row["method"]))
        count, basis = published.seeds(_NAME, row["method"])
        shared = dict(
            table=_NAME, printed_as=row["method"], method=method, model=table["model"], m=None, basis=basis, tasks=tasks
        )
        for ratio, mean in row["ratio"].items():
            cell = {"setting": row["setting"], "ratio": float(ratio)}
            yield Printed(task=published.AVERAGE, score=Score(mean, None, count), cell=cell, **shared)


def _table(shown: experiment.Shown, paper: Sequence[Printed]) -> Table:
    """A row for each setting and method, averaged over tasks; the paper prints no spread, so no difference is judged."""
    records = [*shown.records, *templates.of_each_seed(shown.records)]
    axes = accuracy_table.axes_of(("setting", "method"), records, ())
    ratios = names.ordered("ratio", [scores.axis(each, "ratio") for each in (*records, *paper)])
    groups, printed, rows = scores.pool(records, *axes), scores.pool(paper, *axes), []
    same = {record.task for record in records} == set(paper[0].tasks)
    for place in names.ordered_places(axes, {**groups, **printed}):
        measured, theirs = groups.get(place, []), {number.cell["ratio"]: number for number in printed.get(place, [])}
        comparable = same and all(record.model == published.MODEL for record in measured)
        by_ratio = {ratio: group for (ratio,), group in scores.pool(measured, "ratio").items()}
        ours = {ratio: scores.average(group) for ratio, group in by_ratio.items()}
        row = [
            Cell(
                ours.get(ratio),
                theirs[ratio].score if ratio in theirs else None,
                comparable,
                _marks(shown, by_ratio, ratio),
            )
            for ratio in ratios
        ]
        summaries = zip(_summary(ours), _printed_summary(*place[-2:]), strict=True)
        row += [Cell(*pair, comparable, paper_digits=2) for pair in summaries]
        rows.append(TableRow(tuple(map(names.text, axes, place)), tuple(row)))
    return Table(
        name=_NAME,
        caption="Accuracy in % averaged over tasks by the share λ of the positive class. A: train skewed; B: test skewed; "
        "C: both. Drop: the lowest of the skewed less the balanced; the paper's averages and drops are of its unrounded numbers.",
        headers=tuple(names.HEADERS[axis] for axis in axes),
        columns=(*(f"λ = {ratio:g}" for ratio in ratios), "average", "drop"),
        rows=tuple(rows),
        notes=(
            f"The paper's numbers are {names.model(published.MODEL)}'s over five tasks.",
            *accuracy_table.seeds(_NAME, paper),
        ),
    )


def _marks(shown: experiment.Shown, by_ratio: Mapping[float, Sequence[Record]], ratio: float) -> tuple[str, ...]:
    records = by_ratio.get(ratio, ())
    return (*accuracy_table.of_cell(records), *shown.marks(records)) if records else ()


def _summary(by_ratio: Mapping[float, Score]) -> tuple[Score | None, Score | None]:
    """The average over ratios, and the lowest of the skewed less the balanced."""
    if not by_ratio:
        return None, None
    means = {ratio: score.mean for ratio, score in by_ratio.items()}
    skewed = [mean for ratio, mean in means.items() if ratio != _BALANCED]
    drop = Score(min(skewed) - means[_BALANCED]) if skewed and _BALANCED in means else None
    return Score(sum(means.values()) / len(means)), drop


def _printed_summary(setting: str, method: str) -> tuple[Score | None, Score | None]:
    """The paper's average over ratios and drop, as it prints them."""
    for row in published.tables()[_NAME]["rows"]:
        if row["setting"] == setting and published.is_printed_as(method, row["method"]):
            return Score(row["avg"]), Score(row["max_drop"])
    return None, None


_METHODS = ("icl", "contextual_calibration", "contextual_calibration_trainset", "noisy_channel", "knn")
EXPERIMENTS = (
    experiment.Experiment(
        _NAME,
        "Reliance on prior knowledge",
        "Classes out of balance in train, in test, or in both.",
        _draw,
        defaults={
            "tasks": settings_lib.BINARY_TASKS,
            "methods": ",".join(_METHODS),
            "shots": (16,),
            "seeds": settings_lib.TEN_SEEDS,
            "regime": settings_lib.FEW_SHOT,
        },
        cells=_cells,
        settings=Settings,
        matches=None,
    ),
)
