"""The cells of a table or figure: a method and its rows. One cell is one record."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from knnprompt_jax import options as options_lib
from knnprompt_jax.methods import method as method_lib
from knnprompt_jax.methods import registry
from knnprompt_jax.paper import draws
from knnprompt_jax.runs import inputs
from knnprompt_jax.settings import grids
from knnprompt_jax.settings.classifiers import AUTO
from knnprompt_jax.store import distances

REUSED = "re-uses in-context learning: |D| = m"


@dataclasses.dataclass(frozen=True)
class GridCell:
    """A method, its train rows and the rows to classify.

    Attributes:
      axes: the places on the grid's axes; an axis with the name of an option of the method sets that option.
      test_share: the share of the task's last class in the rows to classify; None keeps their own share.
      variant: a method that runs in place of the named one.
    """

    method: str
    draw: draws.Draw
    axes: tuple[tuple[str, Any], ...] = ()
    test_share: float | None = None
    variant: method_lib.Method | None = dataclasses.field(default=None, compare=False)

    @property
    def reuses_icl(self) -> bool:
        """Whether all shots are demonstrations and none is left for the method, as in the paper's footnote."""
        return self.draw.demo_shots == self.draw.shots and registry.get(self.method).sees != "demonstrations"

    @property
    def declared(self) -> method_lib.Method:
        """The method that runs."""
        return registry.get("icl") if self.reuses_icl else self.variant or registry.get(self.method)

    def options(self, settings: grids.GridSettings) -> options_lib.Options:
        """Return the method's options: the grid's, with the values of axes and the grid's direction in their place."""
        options = getattr(settings.options, self.declared.name)
        names = {field.name for field in dataclasses.fields(options)}
        changes = {name: value for name, value in self.axes if name in names}
        if getattr(options, "distance", AUTO) != AUTO:
            changes["distance"] = distances.turned(options.distance, settings.direction)
        return dataclasses.replace(options, **changes)


def regimes(
    settings: grids.GridSettings, names: Sequence[str], rows: inputs.Rows, max_demo_shots: int
) -> Iterator[GridCell]:
    """Yield a cell for each regime, number of shots, method and seed. `max_demo_shots` is M_T."""
    del rows
    for (regime, shots), name, seed in itertools.product(settings.regime_shots, names, settings.seeds):
        is_few_shot, sees = regime == grids.FEW_SHOT, registry.get(name).sees
        if sees == "demonstrations":
            demo_shots = drawn_shots = shots if is_few_shot else max_demo_shots
        else:
            demo_shots = 0 if sees == "train" else min(shots, 1 if is_few_shot else max_demo_shots)
            drawn_shots = shots
        # Beside the full regime, the few-shot regime goes no further than the context does.
        if not settings.few_shots or demo_shots <= max_demo_shots:
            yield GridCell(name, draws.Draw(seed, drawn_shots, demo_shots), (("regime", regime),))
