"""Evidence to choose a rule by: distances between all pairs of anchors, from states that exist already."""

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from knnprompt_jax import errors, lm
from knnprompt_jax.classifier import rules
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.settings import stores
from knnprompt_jax.store import kernel, search
from knnprompt_jax.store import store as store_lib

LIMIT = 1024  # The most anchors for which all pairs are measured.


@dataclasses.dataclass(frozen=True, eq=False)
class Evidence:
    """N anchors whose prompts begin with the same demonstrations.

    Attributes:
      demo_shots: demonstrations per class.
      ids_N: the anchors' ids, which identify them across numbers of demonstrations.
      y_N: their classes.
      layer: the block whose output a probe reads beside the state; 0: none.
      inputs_NF: what a probe reads of each (`rules.probe_inputs`).
      distances_NN: by the name of each distance, from every anchor as a text (rows) to every anchor (columns).
    """

    demo_shots: int
    ids_N: np.ndarray
    y_N: np.ndarray
    layer: int
    inputs_NF: np.ndarray
    distances_NN: Mapping[str, np.ndarray]
    _nearest: dict[str, tuple[np.ndarray, np.ndarray]] = dataclasses.field(default_factory=dict, init=False)

    def __len__(self) -> int:
        return len(self.y_N)

    def take(self, places_n: np.ndarray) -> "Evidence":
        """Return the evidence of some of the anchors alone."""
        pairs = np.ix_(places_n, places_n)
        between = {name: distances_NN[pairs] for name, distances_NN in self.distances_NN.items()}
        ids_n, y_n, inputs_nF = self.ids_N[places_n], self.y_N[places_n], self.inputs_NF[places_n]
        return Evidence(self.demo_shots, ids_n, y_n, self.layer, inputs_nF, between)

    def nearest_left_out(self, distance: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the other anchors of each [N, N], nearest first, and their distances, infinite for those left out."""
        if distance not in self._nearest:
            distances_NN = np.where(self._left_out_NN, np.inf, self.distances_NN[distance])
            places_NN = np.argsort(distances_NN, -1, kind="stable")
            self._nearest[distance] = places_NN, np.take_along_axis(distances_NN, places_NN, -1)
        return self._nearest[distance]

    @functools.cached_property
    def places_N(self) -> np.ndarray:
        """The anchors' classes, numbered from 0 to P − 1 among those that occur."""
        return np.unique(self.y_N, return_inverse=True)[1]

    @functools.cached_property
    def rows(self) -> rules.ProbeRows:
        """The rows of a probe."""
        return rules.ProbeRows(self.inputs_NF, self.places_N, self.places_N.max() + 1)

    @property
    def shares_P(self) -> np.ndarray:
        """The share of each class that occurs."""
        return np.bincount(self.places_N) / len(self)

    @functools.cached_property
    def _left_out_NN(self) -> np.ndarray:
        """Each anchor leaves out itself and one of every other class, or else its own class would be rarer for it alone."""
        generator, left_out_NN = np.random.default_rng(0), np.eye(len(self), dtype=bool)
        for label, count in zip(*np.unique(self.y_N, return_counts=True), strict=True):
            if count > 1:
                others, members = np.flatnonzero(self.y_N != label), np.flatnonzero(self.y_N == label)
                left_out_NN[others, generator.choice(members, len(others))] = True
        return left_out_NN


def gather(
    states: lm.States,
    y_N: np.ndarray,
    ids_N: Sequence[int] | np.ndarray,
    demo_shots: int,
    head: head_lib.Head,
    label_ids: Sequence[int],
    names: Iterable[str],
) -> Evidence:
    """Measure the distances of these names between all anchors; `states` are replicated on every device."""
    kind = store_lib.kind_of(stores.StoreOptions(), "", head.cap)
    options, between = stores.StoreOptions(kind=kind), {}
    built: dict[str, store_lib.Store] = {}
    for name in names:
        built_for = "" if name in store_lib.KINDS[kind].serves("") else name
        if built_for not in built:
            built[built_for] = store_lib.build(options, built_for, head, states, y_N, label_ids)
        store = built[built_for]
        near = store.search(states, search.SearchOptions(len(store), name))
        between[name] = np.empty((len(store), len(store)), np.float32)
        np.put_along_axis(between[name], np.asarray(near.indices_Qk), np.asarray(near.distances_Qk), -1)
    layer = max(states.layers, default=0)
    return Evidence(demo_shots, np.asarray(ids_N), np.asarray(y_N), layer, rules.probe_inputs(states, layer), between)


def neighbours(store: store_lib.Store, options: search.SearchOptions, states: lm.States) -> kernel.Neighbours:
    """Return the k nearest anchors of each anchor, without itself.

    k + 1 are searched for. Where an anchor is not among its own nearest, because many others equal it, the first k are kept.

    Args:
        states: of the anchors, in the store's order.

    Raises:
        UserError: there are fewer than k other anchors.
    """
    if options.k >= len(store):
        raise errors.UserError(f"k={options.k}: choose from 1 to {len(store) - 1}, the number of other anchors")
    nearest = store.search(states, dataclasses.replace(options, k=options.k + 1))
    itself_Nk = nearest.indices_Qk == jnp.arange(len(store))[:, None]
    # Sort the places of other anchors first, in their order, and the place of the anchor itself last.
    places_Nk = jnp.argsort(itself_Nk, -1, stable=True)[:, : options.k]
    return jax.tree.map(lambda array: jnp.take_along_axis(array, places_Nk, -1), nearest)
