"""The store: states of anchors in, the nearest anchors of queries' states out.

A store serves one distance. For a KL divergence over all tokens, an anchor takes 4 (V + 1) bytes in a "dense" store and
4 (E + 1) in a "factored" one. A search takes bounded memory: queries in blocks and tiles, anchors in tiles
(`plan_search`).
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from knnprompt_jax.common import errors, parallel
from knnprompt_jax.datastore import StoreOptions, dense, distances, rowwise
from knnprompt_jax.datastore import search as search_lib
from knnprompt_jax.datastore.factored import FactoredCodec
from knnprompt_jax.inference import lm
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import head as head_lib

Codec = dense.DenseCodec | FactoredCodec
"""A kind of store: how states become keys and queries of the same size."""

CPU_CACHED_BYTES = 24 * 2**20  # Larger arrays are allocated anew at every step on CPUs.
TPU_DISTANCE_BYTES = 32 * 2**20  # A tile's distances that stay in a TPU's memory on the chip.
_DISTANCE_COPIES = 3  # Arrays of a tile's size, at most: inner products, negative distances, a copy in whole groups.


@dataclasses.dataclass(frozen=True)
class SearchPlan:
    """The sizes of a search.

    Attributes:
        queries_per_block: the number of queries that are encoded and searched at a time.
        options: the options of `search_lib.search`, with the queries and anchors per tile.
        num_bytes: the memory of the search on each device, beside the anchors, the head and the neighbours.
    """

    queries_per_block: int
    options: search_lib.SearchOptions
    num_bytes: int


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

    def plan(self, num_queries: int, k: int) -> SearchPlan:
        """Return the sizes and memory of a search; raise UserError like `search`."""
        if not 1 <= k <= len(self):
            raise errors.UserError(f"k={k}: choose from 1 to {len(self)}, the number of anchors")
        return plan_search(self.codec, self.keys, num_queries, k, int(self.memory_mb * 2**20))

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


def plan_search(codec: Codec, keys: Any, num_queries: int, k: int, memory: int) -> SearchPlan:
    """Choose the sizes of a search that fits in `memory` bytes on each device.

    The memory holds a block of queries, which is encoded and copied by the loop over tiles. It also holds a tile of
    queries, and a tile of anchors with its distances. The sizes of a deterministic store do not depend on the numbers
    of queries and anchors.

    Raises:
        UserError: the memory does not hold a single query and anchor, or one deterministic tile.
    """
    mesh, _ = rowwise.split_over(keys)
    num_shards = mesh.size if mesh else 1
    platform = mesh.devices.flat[0].platform if mesh else jax.default_backend()
    key_bytes = rowwise.row_bytes(keys)  # A query is as large.
    encoding_bytes = codec.working_bytes(num_queries)
    if codec.deterministic:
        block = parallel.round_up(rowwise.ROWS_PER_TILE * num_shards, search_lib.QUERIES_PER_TILE)
        tile = search_lib.QUERIES_PER_TILE
        anchors = rowwise.ROWS_PER_TILE
        anchor_bytes = anchors * (_distance_bytes(tile) + key_bytes)
    else:
        free = memory - encoding_bytes
        block = max(1, min(num_queries, free // 4 // (2 * key_bytes)))  # Two copies fill at most a quarter.
        free -= 2 * block * key_bytes
        tile = max(1, min(search_lib.QUERIES_PER_TILE, block, free // (2 * key_bytes)))  # At most half of the rest.
        free -= tile * key_bytes
        per_shard = rowwise.num_rows(keys) // num_shards
        anchors, anchor_bytes = _anchors_per_tile(per_shard, tile, key_bytes, free, platform)
    num_bytes = encoding_bytes + (2 * block + tile) * key_bytes + anchor_bytes
    if num_bytes > memory:
        raise errors.UserError(
            f"memory_mb={memory / 2**20:g}: this search needs about {num_bytes / 2**20:.1f} MiB; choose a higher memory_mb"
        )
    options = search_lib.SearchOptions(k, codec.distance.measure, tile, anchors)
    return SearchPlan(block, options, num_bytes)


def _distance_bytes(queries_per_tile: int) -> int:
    """Return the bytes of the distances of one anchor in a tile."""
    return 4 * _DISTANCE_COPIES * queries_per_tile


def _anchors_per_tile(
    per_shard: int, queries_per_tile: int, key_bytes: int, memory: int, platform: str
) -> tuple[int, int]:
    """Return the number of anchors in a tile and the bytes of the tile; one of several tiles also copies its keys."""
    distance_bytes = _distance_bytes(queries_per_tile)
    max_anchors = per_shard
    if platform == "cpu" and key_bytes <= 2 * distance_bytes:  # To copy wider keys costs more than to allocate.
        memory = min(memory, CPU_CACHED_BYTES)
    elif platform == "tpu":
        max_anchors = min(per_shard, TPU_DISTANCE_BYTES // (4 * queries_per_tile))
    if max_anchors == per_shard and per_shard * distance_bytes <= memory:
        return per_shard, per_shard * distance_bytes
    anchor_bytes = distance_bytes + key_bytes
    tile = max(1, min(max_anchors, memory // anchor_bytes))
    if search_lib.GROUP < tile < per_shard:
        tile -= tile % search_lib.GROUP
    return tile, tile * anchor_bytes
