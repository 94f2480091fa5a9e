"""Data scaling (table and figure with the power law, and the paper's first two figures): m = 32 … 1024, six model sizes.

The first figure and the pilot figure of ICL against shots need 1 … 32 shots in the few-shot regime too.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

from knnprompt_jax.paper import experiment, settings
from knnprompt_jax.report import curves, drawing, names, power_law, published, scores

T = TypeVar("T")
_TABLE = experiment.tabulated("model", "m", "method", caption=f"{experiment.SPREAD} |D| = M_T.")
_FEW_TABLE = experiment.tabulated(
    "model", "m", "method", caption=f"{experiment.SPREAD} Few-shot scenario: |D| = 1 or, of ICL, m."
)


def _draw(shown: experiment.Shown) -> experiment.Drawn:
    full, few = (_of(shown, regime) for regime in settings.REGIMES)
    tables = list(_TABLE(full)[0])
    if few.records:
        tables += _FEW_TABLE(dataclasses.replace(few, name="data_scaling_few"))[0]
    tables.append(power_law.table(power_law.knn(full.records), power_law.knn(full.paper)))
    return tables, _figures(shown, full, few) if shown.records else []


def _of(shown: experiment.Shown, regime: str) -> experiment.Shown:
    """What is shown of one regime."""
    records, paper = (
        [each for each in some if each.cell.get("regime", settings.FULL) == regime]
        for some in (shown.records, shown.paper)
    )
    return dataclasses.replace(shown, records=records, paper=paper)


def _figures(shown: experiment.Shown, full: experiment.Shown, few: experiment.Shown) -> list[drawing.Figure]:
    figures = [_first(few, full)]
    if pilot := _icl(few.records):
        caption = "In-context learning against the shots in its prompt; † marks prompts cut to the context."
        plot = curves.Plot("m", "shots in the prompt, per class")
        figures.append(curves.figure("pilot", caption, pilot, plot, _icl(few.paper)))
    if knn := power_law.knn(full.records):
        plot, paper = curves.Plot("m", curves.SHOTS, line="model"), power_law.knn(full.paper)
        figures.append(curves.figure("data_scaling", "kNN Prompting against m; |D| = M_T.", knn, plot, paper))
        figures.append(power_law.figure(knn, paper))
    return figures


def _icl(some: Sequence[T]) -> list[T]:
    return [each for each in some if scores.axis(each, "method") == "icl"]


def _first(few: experiment.Shown, full: experiment.Shown) -> drawing.Figure:
    """The paper's first figure: in-context learning ends where the context does, kNN Prompting goes on; for one model."""
    records, paper = (_joined(*parts) for parts in ((few.records, full.records), (few.paper, full.paper)))
    models = scores.by_model(records)
    model = published.MODEL if published.MODEL in models else next(iter(models))
    theirs = [
        number for number in paper if number.model == (model if model in published.SIZES.values() else published.MODEL)
    ]
    caption = f"With {names.model(model)}, kNN Prompting goes on where in-context learning meets the end of the context"
    caption += " (|D| = 1 while m is small, then M_T)."
    return curves.figure("first", caption, models[model], curves.Plot("m", curves.SHOTS), theirs)


def _joined(few: Sequence[T], full: Sequence[T]) -> list[T]:
    """Those of few shots, then kNN Prompting and others where a task has none of few shots."""
    known = {_place(each) for each in few}
    rest = [each for each in full if _place(each) not in known]
    return [*few, *(each for each in rest if scores.axis(each, "method") != "icl")]


def _place(each: Any) -> tuple:
    return each.model, each.task, scores.axis(each, "method"), scores.axis(each, "m")


EXPERIMENTS = (
    experiment.Experiment(
        "data_scaling",
        "Data scaling",
        "From a few train rows to all that the context leaves out: how error falls with m.",
        _draw,
        defaults={"models": settings.SIX_MODELS, "few_shots": (1, *settings.FEW_SHOTS)},
    ),
)
