"""Split strategy (heatmaps): every |D| and |A| whose sum the context holds as demonstrations, k = min(3, |A|), five tasks."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

from knnprompt_jax import options
from knnprompt_jax.paper import cells, draws, experiment
from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.report import heatmaps
from knnprompt_jax.runs import inputs


@dataclasses.dataclass(frozen=True)
class Settings(settings_lib.GridSettings):
    """Those of a grid of sizes: m is the sum of both."""

    demo_shots: tuple[int, ...] = options.option((1, 2, 4, 8, 16), "|D|, rows per class …", least=1)
    anchor_shots: tuple[int, ...] = options.option((1, 2, 4, 8, 16), "… and |A|; m is their sum.", least=1)


def _cells(settings: Settings, names: Sequence[str], rows: inputs.Rows, most: int) -> Iterator[cells.GridCell]:
    del rows
    for name, seed, shown, kept in itertools.product(names, settings.seeds, settings.demo_shots, settings.anchor_shots):
        if shown + kept <= most:
            yield cells.GridCell(name, draws.Draw(seed, shown + kept, shown), (("anchor_shots", kept),))


def _draw(shown: experiment.Shown) -> experiment.Drawn:
    caption = "Mean accuracy in % for each split of the train rows; the darker, the better within its panel."
    figures = [heatmaps.splits(shown.name, caption, shown.records)] if shown.records else []
    return experiment.tabulated("demo_shots", "anchor_shots")(shown)[0], figures


EXPERIMENTS = (
    experiment.Experiment(
        "split_strategy",
        "Demonstrations or anchors",
        "Train rows per class split between demonstrations (D) and anchors (A).",
        _draw,
        defaults={"tasks": settings_lib.BINARY_TASKS, "methods": "knn", "seeds": settings_lib.TEN_SEEDS, "shots": ()},
        matches=None,
        cells=_cells,
        settings=Settings,
    ),
)
