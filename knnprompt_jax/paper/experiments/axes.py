"""Grids over an axis of their own: splits into demonstrations and anchors, the number of neighbours k, and imbalance."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from knnprompt_jax.classifier import rules
from knnprompt_jax.methods import knn, method, registry
from knnprompt_jax.paper import cells, experiment
from knnprompt_jax.report import figures
from knnprompt_jax.runs import inputs
from knnprompt_jax.settings import grids


def _splits(
    settings: grids.SplitSettings, names: Sequence[str], rows: inputs.Rows, most: int
) -> Iterator[cells.GridCell]:
    """Yield every |D| and |A| whose sum the context holds."""
    del rows
    for name, seed, demo_shots, anchor_shots in itertools.product(
        names, settings.seeds, settings.demo_shots, settings.anchor_shots
    ):
        if demo_shots + anchor_shots <= most:
            draw = cells.Draw(seed, demo_shots + anchor_shots, demo_shots)
            yield cells.GridCell(name, draw, (("anchor_shots", anchor_shots),))


def _predict_with_any_k(context: method.Context, settings: Any) -> method.Prediction:
    """Run kNN Prompting without the published limit of k to the number of anchors per class."""
    classifier = knn.fitted(context, settings)
    nearest = classifier.search(context.states[method.queries], settings.k)
    return method.Prediction(*rules.vote(nearest, context.num_classes, settings.tie_break))


_ANY_K = dataclasses.replace(registry.get("knn"), run=_predict_with_any_k)


def _every_k(
    settings: grids.GridSettings, names: Sequence[str], rows: inputs.Rows, most: int
) -> Iterator[cells.GridCell]:
    """Yield kNN Prompting with every k up to the number of anchors, and other methods unchanged."""
    for cell in cells.regimes(settings, names, rows, most):
        if cell.method == _ANY_K.name:
            for k in range(1, len(cells.split(rows, cell.draw).anchors) + 1):
                yield dataclasses.replace(cell, axes=(*cell.axes, ("k", k)), variant=_ANY_K)
        else:
            yield cell


def _skewed(
    settings: grids.ImbalanceSettings, names: Sequence[str], rows: inputs.Rows, most: int
) -> Iterator[cells.GridCell]:
    """Yield each cell at each share of the rare class in all train rows, demonstrations included."""
    for share, cell in itertools.product(settings.shares, cells.regimes(settings, names, rows, most)):
        draw = dataclasses.replace(cell.draw, share=share)
        yield dataclasses.replace(cell, draw=draw, axes=(*cell.axes, ("ratio", share)))


EXPERIMENTS = (
    experiment.Experiment(
        "split_strategy",
        "Demonstrations or anchors",
        "Train rows per class split between demonstrations (D) and anchors (A).",
        experiment.drawn(
            ("demo_shots", "anchor_shots"),
            figures.heatmaps,
            "Mean accuracy in % for each split of the train rows; the darker, the better within its panel.",
        ),
        matches=None,
        cells=_splits,
    ),
    experiment.Experiment(
        "choice_of_k",
        "Choice of k",
        "The number of neighbours that vote.",
        experiment.drawn(
            ("method", "k"),
            figures.curves,
            "Accuracy against the number of neighbours, for each m.",
            plot=figures.Plot("k", "k, nearest anchors", line="m", log=False),
        ),
        cells=_every_k,
        matches={"k": 3},
    ),
    experiment.Experiment(
        "imbalance",
        "Imbalance",
        "One class with a shrinking share of the train rows; the test rows are unchanged.",
        experiment.drawn(
            ("regime", "method", "ratio"),
            figures.curves,
            "Accuracy on the balanced test rows against the skew of the train rows, with all anchors and with one mean per class.",
            f"{experiment.SPREAD} λ: one class's share of the train rows.",
            plot=figures.Plot("ratio", "λ, share of one class in train", panel=("task", "regime"), average=False),
        ),
        cells=_skewed,
        matches={"ratio": 0.5},
    ),
)
