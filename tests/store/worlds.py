"""Peaked distributions, as trained models have them, with the distances between them by NumPy in float64."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy import special

from knnprompt_jax import lm
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.settings import stores
from knnprompt_jax.store import kernel
from knnprompt_jax.store import store as store_lib

VOCABULARY, WIDTH, LABEL_IDS = 4999, 97, (3, 4998, 7, 11, 13)
SHIFT = -90.0  # Logits of trained models lie about here.
MARGIN = 2e-4  # Float32 may mistake neighbours whose distances differ by less.


def divergences(direction: str, logp_QV: np.ndarray, logk_NV: np.ndarray) -> np.ndarray:
    """KL [Q, N] in nats."""
    if direction == "kl":
        return (np.exp(logp_QV) * logp_QV).sum(-1)[:, None] - np.exp(logp_QV) @ logk_NV.T
    return (np.exp(logk_NV) * logk_NV).sum(-1) - logp_QV @ np.exp(logk_NV).T


def distances(
    name: str,
    h_QE: np.ndarray,
    h_NE: np.ndarray,
    logp_QV: np.ndarray,
    logk_NV: np.ndarray,
    label_ids: Sequence[int] = LABEL_IDS,
) -> np.ndarray:
    """Distances [Q, N] by their definition."""
    if name == "l2":
        return np.linalg.norm(h_QE[:, None] - h_NE, axis=-1)
    if name.endswith("labels"):
        logp_QV, logk_NV = (each[:, label_ids] for each in (logp_QV, logk_NV))
        logp_QV, logk_NV = (special.log_softmax(each, axis=-1) for each in (logp_QV, logk_NV))
    return divergences("reverse_kl" if name.startswith("reverse") else "kl", logp_QV, logk_NV)


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
        self,
        kind: str,
        distance: str,
        rows: slice | np.ndarray = slice(None),
        memory_mb: float = 512.0,
        **further: Any,
    ) -> store_lib.Store:
        """Return a store of some of the anchors; `further` are further arguments of `store_lib.build`."""
        options = stores.StoreOptions(kind, memory_mb)
        anchors = self.anchors[rows]
        classes_N = self.classes_N[rows]
        return store_lib.build(options, distance, self.head, anchors, classes_N, LABEL_IDS, **further)

    def search(self, store: store_lib.Store, k: int) -> kernel.Neighbours:
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


def make_world(
    num_anchors: int = 211, num_queries: int = 53, vocabulary: int = VOCABULARY, width: int = WIDTH
) -> World:
    """Entropies of about 3 nats, nearest neighbours half a nat away; all logits shifted, so that naive sums cancel."""
    rng = np.random.default_rng(7)
    common_E = rng.normal(size=width)
    common_E /= np.linalg.norm(common_E)
    head_VE = 0.21 * rng.normal(size=(vocabulary, width)) + SHIFT / 20 * common_E
    modes_ME = rng.normal(size=(13, width))

    def draw(count: int) -> np.ndarray:
        around_NE = modes_ME[rng.integers(0, len(modes_ME), count)] * 1.0 + 0.45 * rng.normal(size=(count, width))
        return (20 * common_E + around_NE).astype(np.float32)

    head_VE = head_VE.astype(np.float32)
    (anchors, logk_NV), (queries, logp_QV) = (_states(head_VE, draw(count)) for count in (num_anchors, num_queries))
    return World(
        head_lib.Head(jnp.asarray(head_VE)), anchors, queries, rng.integers(0, 5, num_anchors), logk_NV, logp_QV
    )


def _states(head_VE: np.ndarray, hidden_NE: np.ndarray) -> tuple[lm.States, np.ndarray]:
    logits_NV = hidden_NE.astype(np.float64) @ head_VE.T.astype(np.float64)
    logp_NV = special.log_softmax(logits_NV, axis=-1)
    log_z_N = (logits_NV - logp_NV)[:, 0]
    return lm.States(jnp.asarray(hidden_NE), jnp.asarray(log_z_N, jnp.float32)), logp_NV
