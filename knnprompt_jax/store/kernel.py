"""The kernel: distances of a query to all anchors, the k smallest, their vote. Written for one query and vmapped.

Keys and queries are log-probabilities [V] in nats (over the vocabulary, or over the label words), hidden states [E], or `Affine`.
Ties: equal distances take the lower anchor index, equal votes the lower class index (or the class of the nearest anchor).

No more than one tile [queries, anchors] of distances exists at a time: anchors go tile by tile, queries too, and the k nearest
so far are merged with those of each tile. That is exact; how anchors are tiled, sharded or streamed shows in no result.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from knnprompt_jax import errors

Array = jax.Array
QUERIES_PER_TILE = 256
TILE_BYTES = 512 * 2**20
_QUERY_COPIES, _DISTANCE_COPIES = 3, 3  # Of a tile's queries and of its distances, as XLA has them at most.


@struct.dataclass
class Neighbours:
    """The k nearest anchors of each query, nearest first; distances in nats (KL) or as Euclidean length (L2)."""

    distances_Qk: Array | np.ndarray
    indices_Qk: Array | np.ndarray
    labels_Qk: Array | np.ndarray


@struct.dataclass
class Affine:
    """Queries [Q, W] or anchors [N, W] with offsets, whose distance is query.offset + anchor.offset − anchor.vector · query.vector."""

    vector: Array
    offset: Array


def forward_kl(logp_V: Array, logk_NV: Array) -> Array:
    """KL(p ‖ k_i) = Σ p log p − Σ p log k_i for every anchor: Eq. 5 of the paper."""
    return _measure("forward", logp_V, _prepare("forward", logk_NV))


def released_kl(logp_V: Array, logk_NV: Array) -> Array:
    """KL(k_i ‖ p) for every anchor: the direction by which the paper's released code ranks."""
    return _measure("released", logp_V, _prepare("released", logk_NV))


def euclidean(h_E: Array, keys_NE: Array) -> Array:
    """‖h − h_i‖ for every anchor, centred on the query so that nearby states lose no digits."""
    return jnp.linalg.norm(keys_NE - h_E, axis=-1)


DISTANCES: dict[str, Callable[[Array, Array], Array]] = {
    "forward": forward_kl,
    "released": released_kl,
    "l2": euclidean,
}


def search(
    queries: Any,
    keys: Any,
    labels_N: Array | np.ndarray,
    *,
    k: int,
    distance: str,
    tile_bytes: int = TILE_BYTES,
    approximate_recall: float | None = None,
) -> Neighbours:
    """The k nearest anchors of every query under a distance of `DISTANCES`, or "affine" between `Affine`s.

    Anchors of a negative class are padding; there must be k others.

    Keys whose rows are split over the devices of a mesh are searched where they lie, and the devices' findings merged.
    `tile_bytes` bounds the working memory on each device. `approximate_recall` finds each neighbour with at least this
    probability, by `jax.lax.approx_max_k`: fast on TPU, while other devices sort and stay exact.

    Raises:
        UserError: `tile_bytes` do not hold even one anchor.
    """
    options = {"k": k, "distance": distance, "tile_bytes": tile_bytes, "approximate_recall": approximate_recall}
    sharding = getattr(jax.tree.leaves(keys)[0], "sharding", None)
    if isinstance(sharding, NamedSharding) and sharding.spec and sharding.spec[0] is not None:
        return _search_sharded(queries, keys, labels_N, mesh=sharding.mesh, axes=sharding.spec[0], **options)
    return _search(queries, keys, labels_N, **options)


def merge(parts: Sequence[Neighbours], k: int) -> Neighbours:
    """The k nearest of several sets of anchors' nearest; the sets stand in the order of their anchors' indices."""
    found = jax.tree.map(lambda *arrays: jnp.concatenate(arrays, -1), *parts)
    _, places_Qk = jax.lax.top_k(-found.distances_Qk, k)
    return jax.tree.map(lambda array: jnp.take_along_axis(array, places_Qk, -1), found)


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a search is tiled, and the bytes that it works in beside keys, queries (and a copy of them) and result."""

    queries: int
    anchors: int
    nbytes: int


def plan(queries: Any, keys: Any, distance: str, tile_bytes: int = TILE_BYTES) -> Plan:
    """The tiles of a search: one where everything fits.

    Beside distances (which top-k orders in a copy) a tile holds what its keys and queries become: probabilities for the KL
    divergence, float32 where keys are stored narrower, and a copy of the keys where they are cut into several tiles.

    Raises:
        UserError: `tile_bytes` do not hold even one anchor.
    """
    num_queries, num_anchors = (jax.tree.leaves(tree)[0].shape[0] for tree in (queries, keys))
    stored = sum(leaf.dtype.itemsize * math.prod(leaf.shape[1:]) for leaf in jax.tree.leaves(keys))
    float32 = sum(4 * math.prod(leaf.shape[1:]) for leaf in jax.tree.leaves(keys))
    prepared = float32 * ((distance == "released") + (stored < float32))
    rows = max(1, min(QUERIES_PER_TILE, num_queries, tile_bytes // (2 * _QUERY_COPIES * float32)))
    own, distances = rows * _QUERY_COPIES * float32, rows * _DISTANCE_COPIES * 4
    if own + num_anchors * (prepared + distances) <= tile_bytes:
        return Plan(rows, num_anchors, own + num_anchors * (prepared + distances))
    each = stored + prepared + distances
    anchors = min(num_anchors, (tile_bytes - own) // each)
    if anchors < 1:
        raise errors.UserError(
            f"search memory of {tile_bytes} bytes: at least {own + each} are needed for a tile of one anchor"
        )
    return Plan(rows, anchors, own + anchors * each)


def vote_shares(labels_Qk: Array | np.ndarray, num_classes: int, weights_Qk: Array | None = None) -> Array:
    """The share of the vote that each class has among the neighbours, [Q, C]; uniform unless weights are given."""
    votes_QkC = jax.nn.one_hot(labels_Qk, num_classes)
    if weights_Qk is not None:
        votes_QkC = votes_QkC * weights_Qk[..., None]
    votes_QC = votes_QkC.sum(1)
    return votes_QC / votes_QC.sum(-1, keepdims=True)


@functools.partial(jax.jit, static_argnames=("num_classes", "tie_break"))
def majority(labels_Qk: Array, *, num_classes: int, tie_break: str = "lowest") -> Array:
    """The class with most votes, [Q]; of several, the lowest index ("lowest") or that of the nearest neighbour among them ("nearest")."""
    counts_QC = jax.nn.one_hot(labels_Qk, num_classes, dtype=jnp.int32).sum(1)
    if tie_break == "lowest":
        return counts_QC.argmax(-1)
    leads_Qk = jnp.take_along_axis(counts_QC, labels_Qk, -1) == counts_QC.max(-1, keepdims=True)
    return jnp.take_along_axis(labels_Qk, leads_Qk.argmax(-1, keepdims=True), -1)[:, 0]


@functools.partial(jax.jit, static_argnames=("k", "distance", "tile_bytes", "approximate_recall"))
def _search(
    queries: Any,
    keys: Any,
    labels_N: Array | np.ndarray,
    *,
    k: int,
    distance: str,
    tile_bytes: int,
    approximate_recall: float | None,
) -> Neighbours:
    tile, num_anchors = plan(queries, keys, distance, tile_bytes), len(labels_N)
    num_queries = len(jax.tree.leaves(queries)[0])

    def visit(best: Neighbours, first: Array) -> tuple[Neighbours, None]:
        start = jnp.minimum(first, num_anchors - tile.anchors)  # The last tile overlaps the one before.
        # The barrier ties the keys to this step: the compiler would widen 16-bit keys before the loop, all at once.
        own, start = jax.lax.optimization_barrier(((keys, labels_N), start))
        cut = functools.partial(jax.lax.dynamic_slice_in_dim, start_index=start, slice_size=tile.anchors)
        keys_n, labels_n = jax.tree.map(cut, own)
        prepared_n = _prepare(distance, keys_n)

        seen_n = start + jnp.arange(tile.anchors) < first

        def nearest(query_and_best: tuple[Any, Neighbours]) -> Neighbours:
            query, best = query_and_best
            nearness_n = jnp.where(seen_n | (labels_n < 0), -jnp.inf, -_measure(distance, query, prepared_n))
            nearness_k, places_k = _top(nearness_n, min(k, tile.anchors), approximate_recall)
            return merge([best, Neighbours(-nearness_k, start + places_k, labels_n[places_k])], k)

        return jax.lax.map(nearest, (queries, best), batch_size=tile.queries), None

    with jax.named_scope("search"), jax.default_matmul_precision("highest"):
        shape = (num_queries, k)
        none = Neighbours(jnp.full(shape, jnp.inf), jnp.zeros(shape, jnp.int32), jnp.zeros(shape, labels_N.dtype))
        return jax.lax.scan(visit, none, jnp.arange(0, num_anchors, tile.anchors))[0]


@functools.partial(jax.jit, static_argnames=("mesh", "axes", "k", "distance", "tile_bytes", "approximate_recall"))
def _search_sharded(
    queries: Any, keys: Any, labels_N: Array | np.ndarray, *, mesh: Mesh, axes: Any, k: int, **options: Any
) -> Neighbours:
    def local(queries: Any, keys: Any, labels_n: Array | np.ndarray) -> Neighbours:
        found = _search(queries, keys, labels_n, k=min(k, len(labels_n)), **options)
        found = found.replace(indices_Qk=found.indices_Qk + jax.lax.axis_index(axes) * len(labels_n))
        return merge([jax.lax.all_gather(found, axes, axis=1, tiled=True)], k)

    rows = P(axes)
    return jax.shard_map(local, mesh=mesh, in_specs=(P(), rows, rows), out_specs=P(), check_vma=False)(
        queries, keys, labels_N
    )


def _top(nearness_n: Array, k: int, approximate_recall: float | None) -> tuple[Array, Array]:
    if approximate_recall is None:
        return jax.lax.top_k(nearness_n, k)
    return jax.lax.approx_max_k(nearness_n, k, recall_target=approximate_recall)


def _prepare(distance: str, keys: Any) -> Any:
    """What a tile of anchors is measured by: once a tile, in float32."""
    keys = jax.tree.map(lambda array: array.astype(jnp.float32), keys)
    if distance == "forward":
        return Affine(keys, jnp.zeros(len(keys)))
    if distance == "released":
        k_NV = jnp.exp(keys)
        return Affine(k_NV, (k_NV * keys).sum(-1))
    return keys


def _measure(distance: str, query: Any, prepared_N: Any) -> Array:
    """The distances [N] of one query from prepared anchors."""
    if distance == "l2":
        return euclidean(query, prepared_N)
    if distance == "forward":
        p_V = jnp.exp(query)
        query = Affine(p_V, p_V @ query)
    elif distance == "released":
        query = Affine(query, jnp.zeros(()))
    return query.offset + prepared_N.offset - prepared_N.vector @ query.vector
