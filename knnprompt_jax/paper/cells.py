"""The cells of a table or figure: which method on which rows. One cell is one record."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from knnprompt_jax import options as options_lib
from knnprompt_jax.methods import method as method_lib
from knnprompt_jax.methods import registry
from knnprompt_jax.paper import draws
from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.runs import material
from knnprompt_jax.store import distances

REUSED = "re-uses in-context learning: |D| = m"


@dataclasses.dataclass(frozen=True)
class GridCell:
    """A method, the train rows it is given and the rows it is to classify.

    Attributes:
      axes: its places on the grid's axes; an axis that is named like an option of the method sets it.
      test_share: which share of the rows to classify the task's last class has, if that is not the rows' own.
      variant: what runs in place of the method, if anything.
    """

    method: str
    draw: draws.Draw
    axes: tuple[tuple[str, Any], ...] = ()
    test_share: float | None = None
    variant: method_lib.Method | None = dataclasses.field(default=None, compare=False)

    @property
    def reuses_icl(self) -> bool:
        """Whether all shots are demonstrations and nothing is left for the method, as in the paper's footnote."""
        return self.draw.demo_shots == self.draw.shots and registry.get(self.method).sees != "demonstrations"

    @property
    def declared(self) -> method_lib.Method:
        """The method that runs."""
        return registry.get("icl") if self.reuses_icl else self.variant or registry.get(self.method)

    def options(self, settings: settings_lib.GridSettings) -> options_lib.Options:
        """The options with which the method runs: the grid's, but for those that an axis or the grid's direction sets."""
        options = getattr(settings.options, self.declared.name)
        names = {field.name for field in dataclasses.fields(options)}
        changes = {name: value for name, value in self.axes if name in names}
        if "distance" in names:
            changes["distance"] = distances.turned(options.distance, settings.direction)
        return dataclasses.replace(options, **changes)


def regimes(
    settings: settings_lib.GridSettings, names: Sequence[str], rows: material.Rows, most: int
) -> Iterator[GridCell]:
    """The methods of these names in each regime, with each number of shots and each seed.

    Args:
      rows: the task's.
      most: M_T, the demonstrations per class that the model's context holds.
    """
    del rows
    for (regime, shots), name, seed in itertools.product(settings.regime_shots, names, settings.seeds):
        drawn = draw(name, seed, shots, regime, most)
        # Beside the full regime, the few-shot regime goes no further than the context does.
        if not settings.few_shots or drawn.demo_shots <= most:
            yield GridCell(name, drawn, (("regime", regime),))


def trained_cells(settings: settings_lib.GridSettings) -> Iterator[GridCell]:
    """The cells of one task with methods that train a model of their own."""
    names = (name for name in settings.method_names if registry.get(name).own_model)
    for name, seed, shots in itertools.product(names, settings.seeds, settings.shots):
        yield GridCell(name, draw(name, seed, shots, settings.regime, 0), (("regime", settings.regime),))


def draw(name: str, seed: int, shots: int, regime: str, most: int) -> draws.Draw:
    """The train rows of a method: demonstrations alone, demonstrations and other shots, or shots to train on."""
    is_few_shot = regime == settings_lib.FEW_SHOT
    sees = registry.get(name).sees
    if sees == "demonstrations":
        shown = shots if is_few_shot else most
        return draws.Draw(seed, shown, shown)
    return draws.Draw(seed, shots, 0 if sees == "train" else min(shots, 1 if is_few_shot else most))
