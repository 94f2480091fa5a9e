"""The store: states of anchors in, the nearest anchors of queries' states out.

A store serves one distance. For a KL divergence over all tokens, an anchor takes 4 (V + 1) bytes in a "dense" store and
4 (E + 1) in a "factored" one. A search takes bounded memory: queries in blocks and tiles, anchors in tiles
(`search_plan`).
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from knnprompt_jax.common import errors, parallel
from knnprompt_jax.datastore import StoreOptions, dense, distances, rowwise, search_plan
from knnprompt_jax.datastore import search as search_lib
from knnprompt_jax.datastore.factored import FactoredCodec
from knnprompt_jax.datastore.search_plan import Codec
from knnprompt_jax.inference import lm
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import head as head_lib


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

    codec: Codec
    keys: Any
    classes_M: jax.Array
    classes_N: np.ndarray
    ids_N: np.ndarray
    mesh: Mesh | None = None
    memory_mb: float = StoreOptions.memory_mb

    def __len__(self) -> int:
        return len(self.ids_N)

    @property
    def num_bytes(self) -> int:
        """The bytes of all anchors, classes included."""
        return rowwise.row_bytes((self.keys, self.classes_M)) * rowwise.num_rows(self.keys)

    def search(self, states: lm.States, k: int) -> search_lib.Neighbours:
        """Return the k nearest anchors of each query, [Q, k]; no distance is negative.

        Raises:
            UserError: k is not between 1 and the number of anchors, or the memory does not hold a single query and
                anchor.
        """
        plan = self.plan(len(states), k)
        blocks = []
        for start in range(0, max(1, len(states)), plan.queries_per_block):
            block = states.take_replicated(slice(start, start + plan.queries_per_block)).without_activations()
            # All blocks have one shape and so share one compilation.
            queries = self._encode(rowwise.pad(block, plan.queries_per_block))
            found = search_lib.search(queries, self.keys, self.classes_M, plan.options)
            blocks.append(rowwise.take(found, slice(0, plan.queries_per_block)))
        nearest = jax.tree.map(lambda *parts: jnp.concatenate(parts)[: len(states)], *blocks)
        # Rounding makes distances between equal states slightly negative.
        return dataclasses.replace(nearest, distances_Qk=jnp.maximum(nearest.distances_Qk, 0))

    def distances(self, states: lm.States) -> np.ndarray:
        """Return the distance [Q, N] between each query and each anchor, not negative, without a bound on memory."""
        queries = self._encode(states.without_activations())
        distances_QN = search_lib.all_distances(queries, self.keys, self.codec.distance.measure)
        return np.maximum(np.asarray(parallel.replicate(distances_QN)), 0)[: len(states), : len(self)]

    def plan(self, num_queries: int, k: int) -> search_plan.SearchPlan:
        """Return the sizes and memory of a search; raise UserError like `search`."""
        if not 1 <= k <= len(self):
            raise errors.UserError(f"k={k}: choose from 1 to {len(self)}, the number of anchors")
        return search_plan.choose(self.codec, self.keys, num_queries, k, int(self.memory_mb * 2**20))

    def _encode(self, states: lm.States) -> Any:
        return self.codec.encode_queries(rowwise.split(states, self.mesh) if self.mesh else states)


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
            anchors, numbered by class, in a dense store that is whole on every device.

    Raises:
        UserError: as `kind_of`, or there are no anchors.
    """
    if not len(states):
        raise errors.UserError("a store needs at least one anchor")
    head = parallel.replicate(head)
    classes_N = np.asarray(classes, np.int32)
    if centroid != "none":
        found = distances.get(distance)
        classes_C, keys = dense.encode_class_means(centroid, found, head, states, classes_N, label_tokens)
        dense_codec = dense.DenseCodec(head, found, tuple(label_tokens))
        return Store(dense_codec, keys, jnp.asarray(classes_C), classes_C, classes_C, memory_mb=options.memory_mb)
    codec = _make_codec(options, distance, head, states, label_tokens)
    mesh = rowwise.find_mesh(states)
    multiple = (rowwise.ROWS_PER_TILE if codec.deterministic else 1) * (mesh.size if mesh else 1)
    count = parallel.round_up(len(states), multiple)
    padded = rowwise.pad(states.without_activations(), count)
    keys = codec.encode_anchors(rowwise.split(padded, mesh) if mesh else padded)
    classes_M = rowwise.pad(classes_N, count, rowwise.PADDING)
    if mesh:
        keys, classes_M = rowwise.split((keys, classes_M), mesh)
    ids_N = np.arange(len(states)) if ids is None else np.asarray(ids)
    return Store(codec, keys, jnp.asarray(classes_M), classes_N, ids_N, mesh, options.memory_mb)


def kind_of(options: StoreOptions, distance: str) -> str:
    """Return the kind of store for a distance, "dense" or "factored".

    A distance between label words or hidden states has small keys in a dense store.

    Raises:
        UserError: the distance is unknown, or a factored store is requested but its divergences are not inner products.
    """
    found = distances.get(distance)
    is_whole = found.representation is distances.Representation.DISTRIBUTION
    if options.kind == "factored" and is_whole and not found.is_factorable:
        message = f"kind='factored': distance={distance!r} is not an inner product of states; choose kind='dense'"
        raise errors.UserError(message)
    return "factored" if found.is_factorable and options.kind != "dense" else "dense"


def anchor_bytes(options: StoreOptions, distance: str, config: config_lib.DecoderConfig, num_classes: int) -> int:
    """Return the bytes of an anchor's keys for a model's states before there is any; raise UserError like `kind_of`."""

    def encode() -> Any:
        head = head_lib.Head(jnp.zeros((config.vocab_size, config.state_width)))
        states = lm.States(jnp.zeros((1, config.state_width)), jnp.zeros(1))
        return _make_codec(options, distance, head, states, range(num_classes)).encode_anchors(states)

    return rowwise.row_bytes(jax.eval_shape(encode))


def _make_codec(
    options: StoreOptions, distance: str, head: head_lib.Head, states: lm.States, label_tokens: Sequence[int]
) -> Codec:
    found = distances.get(distance)
    if kind_of(options, distance) == "factored":
        return FactoredCodec.make(head, states, found)
    return dense.DenseCodec(head, found, tuple(label_tokens), states.deterministic)
