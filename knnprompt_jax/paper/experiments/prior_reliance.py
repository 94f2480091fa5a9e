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
_SUMMARIES = ("average", "drop")
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
    printed = paper[~paper.ratio.isin(_SUMMARIES)]
    drawings = [figures.curves(_NAME, caption, data.ours, printed, plot)] if len(data.ours) else []
    return [_table(data, paper)], drawings


def _paper() -> pd.DataFrame:
    """Return the paper's numbers by setting, method and ratio or summary, all of them averages over tasks."""
    table, numbers = published.tables()[_NAME], []
    shared = {"table": _NAME, "model": table["model"], "task": published.AVERAGE}
    tasks = tuple(task.lower() for task in table["tasks"])
    for row in table["rows"]:
        count, basis = published.seeds(_NAME, row["method"])
        name = next(name for name in _METHODS if published.is_printed_as(name, row["method"]))
        place = {**shared, "setting": row["setting"], "method": name, "basis": basis, "tasks": tasks}
        means = {float(ratio): mean for ratio, mean in row["ratio"].items()}
        means |= {"average": row["avg"], "drop": row["max_drop"]}
        numbers += [{**place, "ratio": ratio, "score": Score(mean, None, count)} for ratio, mean in means.items()]
    return pd.DataFrame(numbers)


def _table(data: experiment.Data, paper: pd.DataFrame) -> Table:
    """Return a row per setting and method, averaged over tasks; the paper prints no spread, so no difference has a verdict."""
    ours = pd.concat([data.ours, results.with_best_template_per_seed(data.ours)])
    axes = accuracies.axes_of(("setting", "method"), ours, published.empty())
    ratios = names.ordered("ratio", {*ours.get("ratio", ()), *paper.ratio} - {*_SUMMARIES})
    measured, printed = results.groups(ours, axes), results.groups(paper, axes)
    same_tasks, cells = set(ours.task) == set(paper.tasks.iloc[0]), {}
    for place in names.ordered_places(axes, measured | printed):
        runs, numbers = measured.get(place, ours[:0]), printed.get(place, paper[:0])
        by_ratio = {ratio: group for (ratio,), group in results.groups(runs, ["ratio"]).items()}
        scores: dict[Any, Score] = {ratio: results.average(group) for ratio, group in by_ratio.items()}
        skewed = [score.mean for ratio, score in scores.items() if ratio != _BALANCED]
        if skewed and _BALANCED in scores:
            scores["drop"] = Score(min(skewed) - scores[_BALANCED].mean)
        if by_ratio:
            scores["average"] = Score(statistics.fmean(scores[ratio].mean for ratio in by_ratio))
        theirs = dict(zip(numbers.ratio, numbers.score, strict=True))
        comparable = same_tasks and bool((runs.model == published.MODEL).all())
        cells[place] = {
            ratio: Cell(
                scores.get(ratio),
                theirs.get(ratio),
                comparable,
                (*accuracies.cell_marks(by_ratio[ratio]), *data.marks(by_ratio[ratio])) if ratio in by_ratio else (),
                paper_digits=2 if ratio in _SUMMARIES else None,
            )
            for ratio in (*ratios, *_SUMMARIES)
        }
    columns: dict[Any, str] = {ratio: f"λ = {ratio:g}" for ratio in ratios} | {name: name for name in _SUMMARIES}
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
