"""Robustness (figure): the spread over ten seeds for each number of shots, m = 32 … 1024."""

import statistics

import pandas as pd

from knnprompt_jax.paper import experiment, settings
from knnprompt_jax.report import figures, names, published, results, tables
from knnprompt_jax.report.results import Score
from knnprompt_jax.report.tables import Cell, Table

_SMALLEST = "gpt2-large"  # The text gives spreads of this model with 32 shots: 3.83 against 9.14.


def _draw(data: experiment.Data) -> experiment.Drawn:
    caption = (
        "Spread over seeds. Box: quartiles and median; whiskers: at most 1.5 times the box's height; dots: seeds; hollow: the "
        "paper's mean ± standard deviation in its table of data scaling."
    )
    drawn, drawings = experiment.drawn(("m", "method"), figures.boxes, caption)(data)
    return [*drawn, _spreads(data.ours)], drawings


def _spreads(ours: pd.DataFrame) -> Table:
    """Return the standard deviation over seeds, averaged over tasks, for each model, m and method."""
    axes = ("model", "m", "method")
    models = {_SMALLEST, published.MODEL, *ours.model}
    paper = published.matching("data_scaling", ["icl", "knn"], [], [], ())
    paper = paper[paper.model.isin(models) & (paper.task != published.AVERAGE)]
    measured, printed, cells = results.groups(ours, axes), results.groups(paper, axes), {}
    for place in names.ordered_places(axes, measured | printed):
        runs = measured.get(place, ours[:0])
        stds, ran = runs.groupby("task").accuracy.std(), runs.task.nunique()
        spread = Score(float(stds.mean())) if len(stds) and stds.notna().all() else None
        theirs = [score.std for score in printed[place].score] if place in printed else []
        fewer = spread and ran < ours.task.nunique()
        cells[place] = {
            "spread": Cell(
                spread,
                Score(statistics.fmean(theirs)) if theirs else None,
                len(theirs) == ours.task.nunique(),
                (f"over {ran} of {ours.task.nunique()} tasks",) if fewer else (),
                digits=2,
            )
        }
    caption = (
        "Sample standard deviation over seeds in points, averaged over tasks; the paper's from the rounded numbers of its table of "
        "data scaling (its text: 3.83 for kNN Prompting against 9.14, with 0.8B and m = 32)."
    )
    return tables.build("robustness_spread", caption, axes, {"spread": "spread"}, cells)


EXPERIMENTS = (
    experiment.Experiment(
        "robustness",
        "Robustness",
        "How much the draw of train rows matters.",
        _draw,
        defaults={"seeds": settings.TEN_SEEDS},
    ),
)
