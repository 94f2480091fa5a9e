"""Data scaling (table and figure with the power law, and the paper's first two figures), and robustness: m = 32 … 1024.

The first figure and the pilot figure of in-context learning against shots also need 1 … 32 shots in the few-shot regime.
Robustness is the spread over ten seeds.
"""

import dataclasses
import statistics
from typing import Any

import pandas as pd

from knnprompt_jax.paper import experiment
from knnprompt_jax.paper.experiments import power_law
from knnprompt_jax.report import drawing, figures, names, published, results, tables
from knnprompt_jax.report.results import Score
from knnprompt_jax.settings import grids

_SMALLEST = "gpt2-large"  # The text gives spreads of this model with 32 shots: 3.83 against 9.14.
_AXES = ("model", "m", "method")
_FEW_SHOT = f"{experiment.SPREAD} Few-shot scenario: |D| = 1, or m for in-context learning."


def _draw(data: experiment.Data) -> experiment.Drawn:
    full, few = (
        dataclasses.replace(
            data, ours=data.ours[data.ours.regime == regime], paper=data.paper[data.paper.regime == regime]
        )
        for regime in grids.REGIMES
    )
    built = list(experiment.tabulated(*_AXES, caption=f"{experiment.SPREAD} |D| = M_T.")(full)[0])
    if len(few.ours):
        few_data = dataclasses.replace(few, name="data_scaling_few")
        built += experiment.tabulated(*_AXES, caption=_FEW_SHOT)(few_data)[0]
    knn, printed = power_law.knn(full.ours), power_law.knn(full.paper)
    built.append(power_law.table(knn, printed))
    drawings = [_first(full, few)] if len(data.ours) else []
    pilot, printed_pilot = (frame[frame.method == "icl"] for frame in (few.ours, few.paper))
    if len(pilot):
        caption = "In-context learning against the shots in its prompt; † marks truncated prompts."
        plot = figures.Plot("m", "shots in the prompt, per class")
        drawings.append(figures.curves("pilot", caption, pilot, printed_pilot, plot))
    if len(knn):
        plot = figures.Plot("m", figures.SHOTS, line="model")
        drawings.append(figures.curves("data_scaling", "kNN Prompting against m; |D| = M_T.", knn, printed, plot))
        caption = "Power law of data scaling: errors, and the fits of ε(m) = α m^β."
        plot = dataclasses.replace(plot, law=power_law.fit)
        drawings.append(figures.curves("power_law", caption, knn, printed, plot))
    return built, drawings


def _first(full: experiment.Data, few: experiment.Data) -> drawing.Figure:
    """Draw the paper's first figure for one model: in-context learning ends with the context, kNN Prompting continues."""
    ours, paper = joined(few.ours, full.ours), joined(few.paper, full.paper)
    models = results.by_model(ours)
    model = published.MODEL if published.MODEL in models else next(iter(models))
    paper = paper[paper.model == (model if model in published.SIZES.values() else published.MODEL)]
    caption = (
        f"With {names.model(model)}, kNN Prompting continues where in-context learning reaches the end of the context "
        "(|D| = 1 while m is small, then M_T)."
    )
    return figures.curves("first", caption, models[model], paper, figures.Plot("m", figures.SHOTS))


def joined(few: pd.DataFrame, full: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of few shots and, for other methods than in-context learning, the places that only `full` has."""
    place = ["model", "task", "method", "m"]
    known = set(few[place].itertuples(index=False, name=None))
    is_new = [each not in known for each in full[place].itertuples(index=False, name=None)]
    return pd.concat([few, full.loc[is_new].loc[lambda rest: rest.method != "icl"]])


def _draw_spreads(data: experiment.Data) -> experiment.Drawn:
    caption = (
        "Spread over seeds. Box: quartiles and median; whiskers: at most 1.5 times the box's height; circles: seeds beyond; hollow: the "
        "paper's mean ± standard deviation in its table of data scaling."
    )
    drawn, drawings = experiment.drawn(("m", "method"), figures.boxes, caption)(data)
    return [*drawn, _spread_table(data.ours)], drawings


def _spread_table(ours: pd.DataFrame) -> tables.Table:
    """Return the standard deviation over seeds, averaged over tasks, for each model, m and method."""
    paper = published.matching("data_scaling", ["icl", "knn"], [], [], ())
    paper = paper[paper.model.isin({_SMALLEST, published.MODEL, *ours.model}) & (paper.task != published.AVERAGE)]
    runs_of, numbers_of = results.groups(ours, _AXES), results.groups(paper, _AXES)
    spreads, num_tasks = {}, ours.task.nunique()
    for place, runs in runs_of.items():
        if (stds := runs.groupby("task").accuracy.std()).notna().all():
            spreads[*place, "spread"] = Score(float(stds.mean()))
    printed = {
        (*place, "spread"): Score(statistics.fmean(score.std for score in numbers.score))
        for place, numbers in numbers_of.items()
    }

    def attributes(key: tuple) -> dict[str, Any]:
        ran, over = runs_of.get(key[:-1], ours[:0]).task.nunique(), len(numbers_of.get(key[:-1], ()))
        fewer = (f"over {ran} of {num_tasks} tasks",) if key in spreads and ran < num_tasks else ()
        return {"comparable": over == num_tasks, "marks": fewer, "digits": 2}

    caption = (
        "Sample standard deviation over seeds in points, averaged over tasks; the paper's from the rounded numbers of its table of "
        "data scaling (its text: 3.83 for kNN Prompting against 9.14, with 0.8B and m = 32)."
    )
    return tables.build(
        "robustness_spread", caption, _AXES, {"spread": "spread"}, spreads, printed, attributes=attributes
    )


EXPERIMENTS = (
    experiment.Experiment(
        "data_scaling",
        "Data scaling",
        f"From a few train rows to all that the context leaves out: how error falls with m. With few shots: {experiment.OTHER_ROWS}",
        _draw,
    ),
    experiment.Experiment(
        "robustness",
        "Robustness",
        "How much the draw of train rows matters.",
        _draw_spreads,
    ),
)
