"""Imbalanced anchors (figure): one class rare, with and without centroids, few-shot (m = 32, |D| = 1) and full (m = 1024).

The rare class has its share of all train rows, demonstrations included, and at least one anchor; the others' number makes up for it.
Demonstrations and test rows stay as they are.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

from knnprompt_jax import options
from knnprompt_jax.paper import cells, experiment
from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.report import curves
from knnprompt_jax.runs import inputs


@dataclasses.dataclass(frozen=True)
class Settings(settings_lib.GridSettings):
    """Those of a grid of skewed draws."""

    shares: tuple[float, ...] = options.option(
        (0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625), "Of the rare class.", least=0.001, most=0.5
    )


def _cells(settings: Settings, names: Sequence[str], rows: inputs.Rows, most: int) -> Iterator[cells.GridCell]:
    for share, cell in itertools.product(settings.shares, cells.regimes(settings, names, rows, most)):
        drawn = dataclasses.replace(cell.draw, share=share)
        yield dataclasses.replace(cell, draw=drawn, axes=(*cell.axes, ("ratio", share)))


EXPERIMENTS = (
    experiment.Experiment(
        "imbalance",
        "Imbalance",
        "One class with a shrinking share of the train rows; the test rows stay as they are.",
        experiment.drawn(
            ("regime", "method", "ratio"),
            curves.figure,
            "Accuracy on the balanced test rows against the skew of the train rows, with all anchors and with one mean per class.",
            f"{experiment.SPREAD} λ: one class's share of the train rows.",
            plot=curves.Plot("ratio", "λ, share of one class in train", panel=("task", "regime"), average=False),
        ),
        defaults={
            "tasks": "mpqa,mr",
            "methods": "knn,knn_centroid,knn_centroid_geometric",
            "shots": (1024,),
            "few_shots": (32,),
            "seeds": settings_lib.TEN_SEEDS,
        },
        cells=_cells,
        settings=Settings,
        matches={"ratio": 0.5},
    ),
)
