"""The store: states of anchors in, the nearest anchors of queries' states out.

A store serves one distance. For a KL divergence over all tokens, an anchor takes 4 (V + 1) bytes in a "dense" store and
4 (E + 1) in a "factored" one.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from knnprompt_jax import distances, errors, lm, parallel, rounding
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.settings.classifiers import StoreOptions
from knnprompt_jax.store import centroids, kernel, rowwise
from knnprompt_jax.store import plan as plan_lib
from knnprompt_jax.store.dense import DenseCodec
from knnprompt_jax.store.factored import FactoredCodec


@dataclasses.dataclass(frozen=True)
class Store:
    """Searchable anchors, or class means, on one device or split by row over the devices of `mesh`.

    Attributes:
        codec: the kind of store, with its distance.
        keys: a pytree of arrays with M ≥ N rows; the last rows may be padding.
        classes_M: the class of each row; −1 for padding.
        classes_N: the class of each anchor, in the host memory of every process.
        ids_N: the caller's number of each anchor; a neighbour with index i is the anchor ids_N[i].
        memory_mb: the memory of a search on each device (2**20 bytes each), beside the anchors and the head.
    """

    codec: plan_lib.Codec
    keys: Any
    classes_M: jax.Array
    classes_N: np.ndarray
    ids_N: np.ndarray
    mesh: Mesh | None = None
    memory_mb: float = StoreOptions.memory_mb

    def __len__(self) -> int:
        return len(self.ids_N)

    @property
    def distance(self) -> distances.Distance:
        """The distance that it searches by."""
        return self.codec.distance

    @property
    def num_bytes(self) -> int:
        """The bytes of all anchors, classes included."""
        return rowwise.row_bytes((self.keys, self.classes_M)) * rowwise.num_rows(self.keys)

    def search(self, states: lm.States, k: int) -> kernel.Neighbours:
        """Return the k nearest anchors of each query, [Q, k]; no distance is negative.

        Raises:
            UserError: k is not between 1 and the number of anchors, or the memory does not hold a single query and
                anchor.
        """
        plan = self.plan(len(states), k)
        starts = range(0, max(1, len(states)), plan.queries_per_block)
        blocks = [self._search_block(states[start : start + plan.queries_per_block], plan) for start in starts]
        nearest = jax.tree.map(lambda *parts: jnp.concatenate(parts)[: len(states)], *blocks)
        # Rounding makes distances between equal states slightly negative.
        return dataclasses.replace(nearest, distances_Qk=jnp.maximum(nearest.distances_Qk, 0))

    def plan(self, num_queries: int, k: int) -> plan_lib.SearchPlan:
        """Return the sizes and memory of a search; raise UserError like `search`."""
        if not 1 <= k <= len(self):
            raise errors.UserError(f"k={k}: choose from 1 to {len(self)}, the number of anchors")
        return plan_lib.make(self.codec, self.keys, num_queries, k, int(self.memory_mb * 2**20))

    def _search_block(self, states: lm.States, plan: plan_lib.SearchPlan) -> kernel.Neighbours:
        """Return the neighbours of at most `queries_per_block` queries.

        All blocks have one shape and so share one compilation.
        """
        padded = rowwise.pad(states.with_layers(()), plan.queries_per_block)
        queries = self.codec.queries(rowwise.split(padded, self.mesh) if self.mesh else padded)
        nearest = kernel.search(queries, self.keys, self.classes_M, plan.kernel)
        return rowwise.take(nearest, slice(0, plan.queries_per_block))


def build(
    options: StoreOptions,
    distance: str,
    head: head_lib.Head,
    states: lm.States,
    classes: Sequence[int] | np.ndarray,
    label_tokens: Sequence[int],
    *,
    ids: Sequence[int] | np.ndarray | None = None,
    centroid: str = "none",
) -> Store:
    """Return a store of anchors, split over the devices of their states.

    Args:
        distance: the distance to search by.
        head: the model's head; each device gets a whole copy, centred for "factored".
        states: the states of the anchors.
        classes: the class index of each anchor.
        label_tokens: one token per class; required by distances between label words.
        ids: numbers of the anchors; by default 0 … N − 1.
        centroid: "none" keeps the anchors; "arithmetic" and "geometric" replace them by a mean of each class that has
            anchors, numbered by class.

    Raises:
        UserError: as `kind_of`, or there are no anchors.
    """
    if not len(states):
        raise errors.UserError("a store needs at least one anchor")
    head = parallel.replicate(head)
    classes_N = np.asarray(classes, np.int32)
    if centroid != "none":
        return _build_centroids(options, centroid, distances.get(distance), head, states, classes_N, label_tokens)
    codec = _make_codec(options, distance, head, states, label_tokens)
    mesh = rowwise.find_mesh(states)
    count = rounding.round_up(len(states), (rowwise.TILE if codec.deterministic else 1) * (mesh.size if mesh else 1))
    padded = rowwise.pad(states.with_layers(()), count)
    keys = codec.encode(rowwise.split(padded, mesh) if mesh else padded)
    classes_M = rowwise.pad(classes_N, count, rowwise.PADDING)
    if mesh:
        keys, classes_M = rowwise.split((keys, classes_M), mesh)
    ids_N = np.arange(len(states)) if ids is None else np.asarray(ids)
    return Store(codec, keys, jnp.asarray(classes_M), classes_N, ids_N, mesh, options.memory_mb)


def _build_centroids(
    options: StoreOptions,
    kind: str,
    distance: distances.Distance,
    head: head_lib.Head,
    states: lm.States,
    classes_N: np.ndarray,
    label_tokens: Sequence[int],
) -> Store:
    """Return a dense store of the mean of each class that has anchors, whole on every device."""
    classes, keys = centroids.encode(kind, distance, head, states, classes_N, label_tokens)
    codec = DenseCodec(head, distance, tuple(label_tokens))
    return Store(codec, keys, jnp.asarray(classes), classes, classes, memory_mb=options.memory_mb)


def kind_of(options: StoreOptions, distance: str) -> str:
    """Return the kind of store for a distance, "dense" or "factored".

    A distance between label words or hidden states has small keys in a dense store.

    Raises:
        UserError: the distance is unknown, or a factored store is requested but its divergences are not inner products.
    """
    found = distances.get(distance)
    is_whole = found.representation is distances.Representation.DISTRIBUTION
    if options.kind == "factored" and is_whole and not found.expectation_side:
        raise errors.UserError(
            f"kind='factored': distance={distance!r} is not an inner product of states; choose kind='dense'"
        )
    return "factored" if found.expectation_side and options.kind != "dense" else "dense"


def anchor_bytes(options: StoreOptions, distance: str, config: config_lib.DecoderConfig, num_classes: int) -> int:
    """Return the bytes of an anchor's keys for a model's states before there is any; raise UserError like `kind_of`."""

    def encode() -> Any:
        head = head_lib.Head(jnp.zeros((config.vocab_size, config.state_width)))
        states = lm.States(jnp.zeros((1, config.state_width)), jnp.zeros(1))
        return _make_codec(options, distance, head, states, range(num_classes)).encode(states)

    return rowwise.row_bytes(jax.eval_shape(encode))


def _make_codec(
    options: StoreOptions, distance: str, head: head_lib.Head, states: lm.States, label_tokens: Sequence[int]
) -> plan_lib.Codec:
    found = distances.get(distance)
    if kind_of(options, distance) == "factored":
        return FactoredCodec.make(head, states, found)
    return DenseCodec(head, found, tuple(label_tokens), states.deterministic)
