"""Distances between all anchors, and their hidden states, from states that are there."""

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from knnprompt_jax import lm
from knnprompt_jax.classifier import probe
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.store import distances as distances_lib
from knnprompt_jax.store import search
from knnprompt_jax.store import store as store_lib

LIMIT = 1024  # Anchors: distances are between all pairs of them.


@dataclasses.dataclass(frozen=True, eq=False)
class Evidence:
    """N anchors that were read after the same demonstrations.

    Attributes:
      demo_shots: demonstrations per class.
      ids_N: numbers of the anchors, by which they are the same after other demonstrations.
      y_N: their classes.
      hidden_NE: their states.
      distances_NN: by the name of each distance, of every anchor as a text (rows) from every anchor (columns).
    """

    demo_shots: int
    ids_N: np.ndarray
    y_N: np.ndarray
    hidden_NE: np.ndarray
    distances_NN: Mapping[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.y_N)

    def take(self, places_n: np.ndarray) -> "Evidence":
        """Some of the anchors alone."""
        pairs = np.ix_(places_n, places_n)
        between = {name: distances_NN[pairs] for name, distances_NN in self.distances_NN.items()}
        return Evidence(self.demo_shots, self.ids_N[places_n], self.y_N[places_n], self.hidden_NE[places_n], between)

    def nearest_left_out(self, distance: str) -> tuple[np.ndarray, np.ndarray]:
        """The other anchors of each [N, N], nearest first, and their distances, which are infinite where one is left out."""
        if distance not in self._nearest:
            distances_NN = np.where(self._left_out_NN, np.inf, self.distances_NN[distance])
            places_NN = np.argsort(distances_NN, -1, kind="stable")
            self._nearest[distance] = places_NN, np.take_along_axis(distances_NN, places_NN, -1)
        return self._nearest[distance]

    @functools.cached_property
    def rows(self) -> probe.Rows:
        """What a probe is fitted on; its classes are those of the present ones, 0 … P − 1."""
        present, places_N = np.unique(self.y_N, return_inverse=True)
        return probe.Rows(self.hidden_NE, places_N, len(present))

    @property
    def shares_P(self) -> np.ndarray:
        """How common the present classes are."""
        return np.bincount(self.rows.y_N) / len(self)

    @functools.cached_property
    def _nearest(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        return {}

    @functools.cached_property
    def _left_out_NN(self) -> np.ndarray:
        """Each anchor leaves itself out, and one of every other class that has several: its own would else be rarer for it alone."""
        generator, left_out_NN = np.random.default_rng(0), np.eye(len(self), dtype=bool)
        for label, count in zip(*np.unique(self.y_N, return_counts=True), strict=True):
            if count > 1:
                others, members = np.flatnonzero(self.y_N != label), np.flatnonzero(self.y_N == label)
                left_out_NN[others, generator.choice(members, len(others))] = True
        return left_out_NN


def of(
    states: lm.States,
    y_N: np.ndarray,
    ids_N: Sequence[int] | np.ndarray,
    demo_shots: int,
    head: head_lib.Head,
    label_ids: Sequence[int],
    names: Iterable[str],
) -> Evidence:
    """The evidence of anchors' states, whole on every device, by the distances of these names; classes are read by `label_ids`."""
    between, kind = {}, store_lib.kind_of(store_lib.StoreOptions(), "", head.cap)
    stores: dict[str, store_lib.Store] = {}
    for name in names:
        built_for = "" if kind == "factored" or distances_lib.get(name).representation != "hidden" else name
        if built_for not in stores:
            stores[built_for] = store_lib.build(
                store_lib.StoreOptions(kind=kind), built_for, head, states, y_N, label_ids
            )
        between[name] = _all_pairs(stores[built_for], states, name)
    return Evidence(demo_shots, np.asarray(ids_N), np.asarray(y_N), np.asarray(states.hidden_NE), between)


def _all_pairs(store: store_lib.Store, states: lm.States, distance: str) -> np.ndarray:
    near = store.search(states, search.SearchOptions(len(store), distance))
    distances_NN = np.empty((len(store), len(store)), np.float32)
    np.put_along_axis(distances_NN, np.asarray(near.indices_Qk), np.asarray(near.distances_Qk), -1)
    return distances_NN
