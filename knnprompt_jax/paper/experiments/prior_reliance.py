"""Reliance on prior knowledge (table): the positive class is rare in the train rows (A), the test rows (B) or both (C).

λ is the positive class's share of all train rows, demonstrations included; of the test rows, rows of either class are left out until
the class has its share. Rows without a skew have λ = 0.5: A's test rows and B's train rows. The paper does not say m; 16 is ours.
"""

import dataclasses
import itertools
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from knnprompt_jax import errors, options
from knnprompt_jax.paper import cells, experiment
from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.report import accuracies, figures, names, published, results, tables
from knnprompt_jax.report.results import Score
from knnprompt_jax.report.tables import Cell, Table
from knnprompt_jax.runs import inputs

_NAME = "prior_reliance"
_BALANCED = 0.5
_IN_TRAIN, _IN_TEST = ("A", "C"), ("B", "C")
_SETTINGS = ("A", "B", "C")
_METHODS = ("icl", "contextual_calibration", "contextual_calibration_trainset", "noisy_channel", "knn")


@dataclasses.dataclass(frozen=True)
class Settings(settings_lib.GridSettings):
    """Options of a grid of skewed train and test rows."""

    prior_settings: str = options.option("A,B,C", "A: rare in train; B: rare in test; C: both. Comma-separated.")
    shares: tuple[float, ...] = options.option(
        (0.125, 0.25, 0.375, 0.5), "Shares of the positive class.", least=0.001, most=0.5
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


def _draw(data: experiment.Data) -> experiment.Drawn:
    paper = _paper()
    plot = figures.Plot("ratio", "λ, share of the positive class", panel=("setting",), log=False, average=False)
    caption = "Accuracy averaged over tasks. A: train skewed; B: test skewed; C: both."
    drawings = [figures.curves(_NAME, caption, data.ours, paper, plot)] if len(data.ours) else []
    return [_table(data, paper)], drawings


def _paper() -> pd.DataFrame:
    """Return the paper's numbers by setting, method and ratio, all of them averages over tasks."""
    table, numbers = published.tables()[_NAME], []
    shared = {"table": _NAME, "model": table["model"], "task": published.AVERAGE}
    tasks = tuple(task.lower() for task in table["tasks"])
    for row in table["rows"]:
        count, basis = published.seeds(_NAME, row["method"])
        name = next(name for name in _METHODS if published.is_printed_as(name, row["method"]))
        place = {**shared, "setting": row["setting"], "method": name, "basis": basis, "tasks": tasks}
        place |= {"summary": {"average": Score(row["avg"]), "drop": Score(row["max_drop"])}}
        for ratio, mean in row["ratio"].items():
            numbers.append({**place, "ratio": float(ratio), "score": Score(mean, None, count)})
    return pd.DataFrame(numbers)


def _table(data: experiment.Data, paper: pd.DataFrame) -> Table:
    """Return a row per setting and method, averaged over tasks; the paper prints no spread, so no difference has a verdict."""
    ours = pd.concat([data.ours, results.with_best_template_per_seed(data.ours)])
    axes = accuracies.axes_of(("setting", "method"), ours, published.empty())
    ratios = names.ordered("ratio", [*ours.get("ratio", ()), *paper.ratio])
    columns: dict[Any, str] = {ratio: f"λ = {ratio:g}" for ratio in ratios} | {"average": "average", "drop": "drop"}
    measured, printed = results.groups(ours, axes), results.groups(paper, axes)
    same_tasks, cells = set(ours.task) == set(paper.tasks.iloc[0]), {}
    for place in names.ordered_places(axes, measured | printed):
        runs, numbers = measured.get(place, ours[:0]), printed.get(place, paper[:0])
        by_ratio = {ratio: group for (ratio,), group in results.groups(runs, ["ratio"]).items()}
        means = {ratio: results.average(group) for ratio, group in by_ratio.items()}
        scores: dict[Any, Score] = {**means}
        if means:
            scores["average"] = Score(statistics.fmean(score.mean for score in means.values()))
        skewed = [score.mean for ratio, score in means.items() if ratio != _BALANCED]
        if skewed and _BALANCED in means:
            scores["drop"] = Score(min(skewed) - means[_BALANCED].mean)
        theirs: dict[Any, Score] = dict(zip(numbers.ratio, numbers.score, strict=True))
        theirs |= numbers.summary.iloc[0] if len(numbers) else {}
        marks = {ratio: (*accuracies.cell_marks(group), *data.marks(group)) for ratio, group in by_ratio.items()}
        comparable = same_tasks and (runs.model == published.MODEL).all()
        cells[place] = {
            each: Cell(
                scores.get(each),
                theirs.get(each),
                bool(comparable),
                marks.get(each, ()),
                paper_digits=None if each in ratios else 2,
            )
            for each in columns
        }
    caption = (
        "Accuracy in % averaged over tasks by the share λ of the positive class. A: train skewed; B: test skewed; C: both. "
        "Drop: the lowest of the skewed minus the balanced; the paper's averages and drops are of its unrounded numbers."
    )
    note = f"The paper's numbers are {names.model(published.MODEL)}'s over five tasks."
    return tables.build(_NAME, caption, axes, columns, cells, [note, *accuracies.seeds(_NAME, paper)])


EXPERIMENTS = (
    experiment.Experiment(
        _NAME,
        "Reliance on prior knowledge",
        "Classes out of balance in the train rows, the test rows or both.",
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
