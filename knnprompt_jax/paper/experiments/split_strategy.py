"""Split strategy (heatmaps): every |D| and |A| whose sum the context holds as demonstrations, k = min(3, |A|), five tasks.

Cost: 180 passes, 50 thousand prompts, 1.3 million tokens.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

from knnprompt_jax import options
from knnprompt_jax.paper import cells, draws, experiment
from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.report import heatmaps
from knnprompt_jax.runs import material


@dataclasses.dataclass(frozen=True)
class Settings(settings_lib.GridSettings):
    """Those of a grid of sizes: m is the sum of both."""

    demo_shots: tuple[int, ...] = options.option((1, 2, 4, 8, 16), "|D|, rows per class …", least=1)
    anchor_shots: tuple[int, ...] = options.option((1, 2, 4, 8, 16), "… and |A|; m is their sum.", least=1)


def _cells(settings: Settings, names: Sequence[str], rows: material.Rows, most: int) -> Iterator[cells.Cell]:
    del rows
    for name, seed, shown, kept in itertools.product(names, settings.seeds, settings.demo_shots, settings.anchor_shots):
        if shown + kept <= most:
            yield cells.Cell(name, draws.Draw(seed, shown + kept, shown), (("anchor_shots", kept),))


EXPERIMENT = experiment.Experiment(
    "split_strategy",
    "Demonstrations or anchors",
    "Train rows per class split between demonstrations (D) and anchors (A).",
    experiment.drawn(
        ("demo_shots", "anchor_shots"),
        heatmaps.splits,
        "Mean accuracy in % for each split of the train rows; the darker, the better within its panel.",
    ),
    defaults={"tasks": settings_lib.BINARY_TASKS, "methods": "knn", "seeds": settings_lib.TEN_SEEDS},
    printed={"tasks": "", "shots": ()},
    cells=_cells,
    settings=Settings,
)
