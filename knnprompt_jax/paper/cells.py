"""The cells of a table or figure: which method on which rows. One cell is one record."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from knnprompt_jax.methods import method as method_lib
from knnprompt_jax.methods import registry
from knnprompt_jax.paper import draws, neighbours
from knnprompt_jax.paper import settings as settings_lib

REUSED = "re-uses in-context learning: |D| = m"
# Methods that see the demonstrations alone; all others see the other shots too.
SEE_DEMONSTRATIONS = (
    *("icl", "icl_multi_token", "contextual_calibration", "contextual_calibration_trainset", "batch_calibration"),
    *("noisy_channel", "noisy_channel_direct", "noisy_channel_direct_plus", "noisy_channel_ensemble"),
)
# Methods whose name says the direction of their divergence: a grid's own direction leaves them alone.
FIXED_DIRECTION = ("knn_released",)
UPPER_BOUND = "demonstration_upper_bound"
CENTROIDS = {"knn_centroid": "arithmetic", "knn_centroid_geometric": "geometric"}


@dataclasses.dataclass(frozen=True)
class Cell:
    """A method, the train rows it is given and the rows it is to classify; `axes` are its places on the grid's own axes.

    With a `test_share`, the task's last class has that share of the rows to classify.
    """

    method: str
    draw: draws.Draw
    axes: tuple[tuple[str, Any], ...] = ()
    test_share: float | None = None

    @property
    def reuses_icl(self) -> bool:
        """Whether all shots are demonstrations and nothing is left for the method, as in the paper's footnote."""
        return self.draw.demo_shots == self.draw.shots and self.method not in SEE_DEMONSTRATIONS

    @property
    def declared(self) -> method_lib.Method:
        """The method that runs."""
        if self.reuses_icl:
            return registry.get("icl")
        return neighbours.METHOD if "k" in dict(self.axes) else registry.get(self.method)

    def options(self, settings: settings_lib.GridSettings) -> dict[str, Any]:
        """The options that it runs with."""
        if self.reuses_icl:
            return {}
        given = dict(settings.options.get(self.method, {}))
        if "k" in dict(self.axes):
            given = {"k": dict(self.axes)["k"]}
        if "direction" in self.declared.options and self.method not in FIXED_DIRECTION:
            given["direction"] = settings.direction
        return registry.with_options(self.declared, given)


def without_language_model(name: str) -> bool:
    """Whether a method trains a model of its own and needs none of the grid's."""
    return bool(registry.get(name).options.get("model"))


def enumerate_cells(settings: settings_lib.GridSettings, rows: draws.Rows, most: int) -> Iterator[Cell]:
    """The cells of one task and model, whose context holds `most` demonstrations a class; the same cell may come twice."""
    names = [name for name in settings.method_names if not without_language_model(name)]
    yield from _GRIDS.get(settings.experiment, _regimes)(settings, names, rows, most)


def trained_cells(settings: settings_lib.GridSettings) -> Iterator[Cell]:
    """The cells of one task with methods that train a model of their own."""
    names = filter(without_language_model, settings.method_names)
    for name, seed, shots in itertools.product(names, settings.seeds, settings.shots):
        yield Cell(name, _draw(name, seed, shots, settings.regime, 0))


def _regimes(settings: settings_lib.GridSettings, names: list[str], rows: draws.Rows, most: int) -> Iterator[Cell]:
    """Of two regimes, the few-shot one goes no further than the context does. The upper bound is searched for once, as published."""
    del rows
    for (regime, shots), name in itertools.product(list(_shots(settings)), names):
        axes = (("regime", regime),) if settings.few_shots else ()
        for seed in settings.seeds[:1] if name == UPPER_BOUND else settings.seeds:
            draw = _draw(name, seed, shots, regime, most)
            if not axes or draw.demo_shots <= most:
                yield Cell(name, draw, axes + _prompts(settings, name))


def _shots(settings: settings_lib.GridSettings) -> Iterator[tuple[str, int]]:
    for shots in settings.shots:
        yield settings.regime, shots
    for shots in settings.few_shots:
        yield settings_lib.FEW_SHOT, shots


def _draw(name: str, seed: int, shots: int, regime: str, most: int, share: float | None = None) -> draws.Draw:
    if name in SEE_DEMONSTRATIONS:
        shown = shots if regime == settings_lib.FEW_SHOT else most
        return draws.Draw(seed, shown, shown, share)
    if name.startswith("fine_tuning"):  # All shots are rows to train on.
        return draws.Draw(seed, shots, 0, share)
    return draws.Draw(seed, shots, min(shots, 1 if regime == settings_lib.FEW_SHOT else most), share)


def _prompts(settings: settings_lib.GridSettings, name: str) -> tuple[tuple[str, Any], ...]:
    if name != UPPER_BOUND:
        return ()
    options: Mapping[str, Any] = {**registry.get(name).options, **settings.options.get(name, {})}
    return (("prompts", options["num_prompts"]),)


def _priors(settings: settings_lib.GridSettings, names: list[str], rows: draws.Rows, most: int) -> Iterator[Cell]:
    """Setting A has the rarer class rare in the train rows, B in the rows to classify, C in both."""
    del rows
    for setting, share, (regime, shots), name, seed in itertools.product(
        settings.prior_setting_names, settings.shares, list(_shots(settings)), names, settings.seeds
    ):
        train_share = None if setting == "B" else share
        cell = Cell(name, _draw(name, seed, shots, regime, most, train_share), (("setting", setting), ("ratio", share)))
        yield dataclasses.replace(cell, test_share=None if setting == "A" else share)


def _imbalance(settings: settings_lib.GridSettings, names: list[str], rows: draws.Rows, most: int) -> Iterator[Cell]:
    del rows
    for (regime, shots), share, name, seed in itertools.product(
        list(_shots(settings)), settings.shares, names, settings.seeds
    ):
        axes = (("ratio", share), ("centroid", CENTROIDS.get(name, "none")), ("regime", regime))
        yield Cell(name, _draw(name, seed, shots, regime, most, share), axes)


def _sizes(settings: settings_lib.GridSettings, names: list[str], rows: draws.Rows, most: int) -> Iterator[Cell]:
    """Every |D| and |A| that the context would hold together as demonstrations."""
    del rows
    for name, seed, shown, kept in itertools.product(names, settings.seeds, settings.demo_shots, settings.anchor_shots):
        if shown + kept <= most:
            yield Cell(name, draws.Draw(seed, shown + kept, shown), (("anchor_shots", kept),))


def _neighbours(settings: settings_lib.GridSettings, names: list[str], rows: draws.Rows, most: int) -> Iterator[Cell]:
    for name, seed, (regime, shots) in itertools.product(names, settings.seeds, list(_shots(settings))):
        draw = _draw(name, seed, shots, regime, most)
        if name == neighbours.METHOD.name:
            for k in range(1, len(draws.split(rows, draw).anchors) + 1):
                yield Cell(name, draw, (("k", k),))
        else:
            yield Cell(name, draw)


_GRIDS: dict[str, Callable[..., Iterator[Cell]]] = {
    "prior_reliance": _priors,
    "imbalance": _imbalance,
    "split_strategy": _sizes,
    "choice_of_k": _neighbours,
}
