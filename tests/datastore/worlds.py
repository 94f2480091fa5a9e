"""Peaked distributions, as trained models have them, with the distances between them by NumPy in float64."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from knnprompt_jax.datastore import StoreOptions
from knnprompt_jax.datastore import search as search_lib
from knnprompt_jax.datastore import store as store_lib
from knnprompt_jax.devices import worlds
from knnprompt_jax.devices.worlds import LABEL_TOKENS, VOCABULARY, WIDTH, distances, divergences  # noqa: F401
from knnprompt_jax.inference import lm
from knnprompt_jax.models import head as head_lib

MARGIN = 2e-4  # Float32 may mistake neighbours whose distances differ by less.


@dataclasses.dataclass(frozen=True)
class World:
    """A head, and anchors and queries as states and log-probabilities in float64."""

    head: head_lib.Head
    anchors: lm.States
    queries: lm.States
    classes_N: np.ndarray
    logk_NV: np.ndarray
    logp_QV: np.ndarray

    def distances(self, name: str) -> np.ndarray:
        """Distances [Q, N] in float64."""
        h_QE, h_NE = (np.asarray(each.hidden_NE, np.float64) for each in (self.queries, self.anchors))
        return distances(name, h_QE, h_NE, self.logp_QV, self.logk_NV)

    def build(
        self, kind: str, distance: str, rows: slice | np.ndarray = slice(None), memory_mb: float = 512.0, **further: Any
    ) -> store_lib.Store:
        """Return a store of some of the anchors; `further` are further arguments of `store_lib.build`."""
        options = StoreOptions(kind, memory_mb)
        anchors = self.anchors.take_replicated(rows)
        classes_N = self.classes_N[rows]
        return store_lib.build(options, distance, self.head, anchors, classes_N, LABEL_TOKENS, **further)

    def search(self, store: store_lib.Store, k: int) -> search_lib.Neighbours:
        return store.search(self.queries, k)

    def all_distances(self, store: store_lib.Store) -> np.ndarray:
        """Return the store's own distances [Q, N], in the order of its anchors."""
        nearest = self.search(store, len(store))
        distances_QN = np.empty(nearest.distances_Qk.shape)
        np.put_along_axis(distances_QN, np.asarray(nearest.indices_Qk), np.asarray(nearest.distances_Qk, float), -1)
        return distances_QN


def check_ranks(indices_Qk: Any, want_QN: np.ndarray, least: float = 0.8, margin: Any = MARGIN) -> None:
    """Check each anchor's rank against float64 distances, wherever adjacent ranks are further apart than the margin."""
    order_QN = want_QN.argsort(-1)
    gaps_QN = np.diff(np.take_along_axis(want_QN, order_QN, -1), prepend=-1e9, append=1e9)
    k = np.shape(indices_Qk)[1]
    certain_Qk = (np.minimum(gaps_QN[:, :-1], gaps_QN[:, 1:]) > margin)[:, :k]
    assert certain_Qk.mean() > least, "too few ranks are certain for this to test anything"
    np.testing.assert_array_equal(np.asarray(indices_Qk)[certain_Qk], order_QN[:, :k][certain_Qk])


def make_world(num_anchors=211, num_queries=53, vocabulary=VOCABULARY, width=WIDTH) -> World:
    """Return the world of `knnprompt check`, with labels."""
    drawn = worlds.draw(num_anchors, num_queries, vocabulary, width)
    return World(
        head_lib.Head(jnp.asarray(drawn.head_VE)),
        lm.States(jnp.asarray(drawn.hidden_NE), jnp.asarray(drawn.log_z_N)),
        lm.States(jnp.asarray(drawn.hidden_QE), jnp.asarray(drawn.log_z_Q)),
        np.random.default_rng(7).integers(0, 5, num_anchors),
        drawn.logk_NV,
        drawn.logp_QV,
    )
