"""Evidence to choose a rule by: distances between all pairs of anchors, from states that exist already."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from knnprompt_jax import errors, lm
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.settings import stores
from knnprompt_jax.store import kernel
from knnprompt_jax.store import store as store_lib

LIMIT = 1024  # The maximum number of anchors for which all pairs are measured.


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

    def __len__(self) -> int:
        return len(self.y_N)

    def take(self, indices_n: np.ndarray) -> "Evidence":
        """Return the evidence of some of the anchors."""
        return dataclasses.replace(
            self,
            ids_N=self.ids_N[indices_n],
            y_N=self.y_N[indices_n],
            inputs_NF=self.inputs_NF[indices_n],
            distances_NN={name: table[np.ix_(indices_n, indices_n)] for name, table in self.distances_NN.items()},
        )

    def indices(self, ids_n: np.ndarray) -> np.ndarray:
        """Return the indices [n] of the anchors with these ids."""
        order_N = np.argsort(self.ids_N)
        return order_N[np.searchsorted(self.ids_N, ids_n, sorter=order_N)]

    @functools.cached_property
    def nearest_left_out(self) -> Mapping[str, tuple[np.ndarray, np.ndarray]]:
        """The anchors nearest to each [N, N], nearest first, and their distances, by the name of each distance.

        An anchor is not its own neighbour, so its class has one anchor fewer than in a search for new texts. Therefore,
        one random anchor of every other class is left out too. Those left out come last, at an infinite distance.
        """
        generator = np.random.default_rng(0)
        left_out_NN = np.eye(len(self), dtype=bool)
        for label, count in zip(*np.unique(self.y_N, return_counts=True), strict=True):
            if count > 1:
                rest = np.flatnonzero(self.y_N != label)
                members = np.flatnonzero(self.y_N == label)
                left_out_NN[rest, generator.choice(members, len(rest))] = True
        nearest = {}
        for name, distances_NN in self.distances_NN.items():
            distances_NN = np.where(left_out_NN, np.inf, distances_NN)
            order_NN = np.argsort(distances_NN, -1, kind="stable")
            nearest[name] = order_NN, np.take_along_axis(distances_NN, order_NN, -1)
        return nearest

    @functools.cached_property
    def compact_y_N(self) -> np.ndarray:
        """The anchors' classes, numbered from 0 to P − 1 among those that occur."""
        return np.unique(self.y_N, return_inverse=True)[1]

    @property
    def shares_P(self) -> np.ndarray:
        """The share of each class that occurs."""
        return np.bincount(self.compact_y_N) / len(self)


def all_pairs(distance: str, states: lm.States, head: head_lib.Head, label_ids: Sequence[int]) -> np.ndarray:
    """Return the distances from every anchor as a text (rows) to every anchor (columns).

    The states must be whole on every device.
    """
    count = len(states)
    store = store_lib.build(stores.StoreOptions(), distance, head, states, np.zeros(count, int), label_ids)
    near = store.search(states, count)
    distances_NN = np.empty((count, count), np.float32)
    np.put_along_axis(distances_NN, np.asarray(near.indices_Qk), np.asarray(near.distances_Qk), -1)
    return distances_NN


def neighbours(store: store_lib.Store, k: int, states: lm.States) -> kernel.Neighbours:
    """Return the k nearest anchors of each anchor, without itself.

    k + 1 are searched for. Where an anchor is not among its own nearest, because many others equal it, the first k are
    kept.

    Args:
        states: of the anchors, in the store's order.

    Raises:
        UserError: there are fewer than k other anchors.
    """
    if not 1 <= k < len(store):
        raise errors.UserError(f"k={k}: choose from 1 to {len(store) - 1}, the number of other anchors")
    nearest = store.search(states, k + 1)
    itself_Nk = nearest.indices_Qk == jnp.arange(len(store))[:, None]
    # Sort the other anchors first, in their order, and the anchor itself last.
    order_Nk = jnp.argsort(itself_Nk, -1, stable=True)[:, :k]
    return jax.tree.map(lambda array: jnp.take_along_axis(array, order_Nk, -1), nearest)
