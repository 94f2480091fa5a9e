"""Empirical choice of k (figure): k from 1 to |A| on three tasks.

The paper does not say m; 32 with |D| = 1 is ours, which leaves 62 anchors.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from knnprompt_jax.classifier import rules
from knnprompt_jax.methods import knn, method, registry
from knnprompt_jax.paper import cells, draws, experiment
from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.report import curves, scores
from knnprompt_jax.runs import material


def _run(context: method.Context, settings: Any) -> method.Prediction:
    """kNN Prompting without the published rule by which k is never more than a class has anchors."""
    classifier = knn.fitted(context, settings)
    nearest = classifier.search(context.states[method.queries], settings.k)
    return method.Prediction(*rules.vote(nearest, context.num_classes, settings.tie_break))


_ANY_K = dataclasses.replace(registry.get("knn"), run=_run)


def _cells(
    settings: settings_lib.GridSettings, names: Sequence[str], rows: material.Rows, most: int
) -> Iterator[cells.GridCell]:
    """kNN Prompting with every k, other methods as they are."""
    for cell in cells.regimes(settings, names, rows, most):
        if cell.method != _ANY_K.name:
            yield cell
            continue
        for k in range(1, len(draws.split(rows, cell.draw).anchors) + 1):
            yield dataclasses.replace(cell, axes=(*cell.axes, ("k", k)), variant=_ANY_K)


def _draw(shown: experiment.Shown) -> experiment.Drawn:
    has_several_m = len(scores.pool(shown.records, "m")) > 1
    plot = curves.Plot("k", "k, nearest anchors", line="m" if has_several_m else "method", log=False)
    axes = ("m", "method", "k") if has_several_m else ("method", "k")
    return experiment.drawn(axes, curves.figure, "Accuracy against the number of neighbours.", plot=plot)(shown)


EXPERIMENTS = (
    experiment.Experiment(
        "choice_of_k",
        "Choice of k",
        "How many neighbours vote.",
        _draw,
        defaults={
            "tasks": "sst2,subj,mpqa",
            "methods": "knn",
            "shots": (32,),
            "seeds": settings_lib.TEN_SEEDS,
            "regime": settings_lib.FEW_SHOT,
        },
        cells=_cells,
        matches={"k": 3},
    ),
)
