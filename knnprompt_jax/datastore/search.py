"""The search: distances of queries to all anchors, the k smallest, their vote.

Ties: equal distances take the lower anchor index, equal votes the lower class index.

Only one tile [queries, anchors] of distances exists at a time. The k nearest so far are merged with those of each tile.
Merging is exact; but a device may round the distances of equal anchors differently where a tile has another shape.

In names of arrays, g counts groups of anchors, and G the anchors of a group.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from knnprompt_jax.common import errors
from knnprompt_jax.common import options as options_lib
from knnprompt_jax.datastore import distances, rowwise

Array = jax.Array
QUERIES_PER_TILE = 256
GROUP = 64  # Anchors per group; the first sort sees only each group's nearest.


class VoteOptions(options_lib.Options):
    """The anchors that vote."""

    k: int = options_lib.option(
        3,
        "Neighbours that vote. Methods lower it to the anchors per class (as in the released code), and to 1 with centroids.",
        least=1,
    )
    distance: str = options_lib.option(
        "kl",
        "kl is KL(test ‖ anchor), Eq. 5 of the paper; reverse_kl is KL(anchor ‖ test), as in its code; kl_labels and "
        "reverse_kl_labels compare label words only; l2 is the distance of hidden states.",
        choices=distances.DISTANCES,
    )


class KNNOptions(VoteOptions):
    """The anchors that vote, or the mean of each class's anchors."""

    centroid: str = options_lib.option(
        "none", "Replace the anchors of each class by their mean.", choices=("none", "arithmetic", "geometric")
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        divergences = [name for name, distance in distances.DISTANCES.items() if distance.direction]
        if self.centroid != "none" and self.distance not in divergences:
            raise errors.UserError(
                f"centroid={self.centroid!r} needs a distance between distributions: choose distance="
                f"{', '.join(divergences)}"
            )


@struct.dataclass
class Neighbours:
    """The k nearest anchors of each query, nearest first; distances in the unit of the `Distance`."""

    distances_Qk: Array | np.ndarray
    indices_Qk: Array | np.ndarray
    classes_Qk: Array | np.ndarray


@dataclasses.dataclass(frozen=True)
class SearchOptions:
    """The options of a search.

    Attributes:
        k: the number of neighbours.
        measure: maps a query and N keys to distances [N], as in `distances.Distance`.
        queries_per_tile: the maximum number of queries whose distances exist at a time.
        anchors_per_tile: the same for anchors. A search in several tiles copies the keys of each.
    """

    k: int
    measure: Callable[[Any, Any], Array]
    queries_per_tile: int
    anchors_per_tile: int


def search(queries: Any, keys: Any, classes_M: Array | np.ndarray, options: SearchOptions) -> Neighbours:
    """Return the k nearest anchors of every query.

    Anchors with a negative class are padding; at least k real anchors are required. Keys whose rows are split over the
    devices of a mesh are searched where they are; the devices' neighbours are merged.
    """
    mesh, axes = rowwise.split_over(keys)
    return search_compiled(queries, keys, classes_M, options, mesh, axes)


# 1: never split a sum. A GPU that splits the sum over an odd vocabulary in two would first copy all keys, padded.
@functools.partial(
    jax.jit, static_argnames=("options", "mesh", "axes"), compiler_options={"xla_gpu_experimental_force_split_k": 1}
)
def search_compiled(
    queries: Any, keys: Any, classes_M: Array | np.ndarray, options: SearchOptions, mesh: Mesh | None, axes: Any
) -> Neighbours:
    """Search keys that are split over these axes of a mesh, or on one device; `jax.jit` needs the mesh to be static."""
    if mesh is None:
        return _search_device(queries, keys, classes_M, options)

    def search_shard(queries: Any, keys: Any, classes_m: Array | np.ndarray) -> Neighbours:
        near = _search_device(queries, keys, classes_m, options)
        first = jax.lax.axis_index(axes) * len(classes_m)
        near = dataclasses.replace(near, indices_Qk=near.indices_Qk + first)
        return merge([jax.lax.all_gather(near, axes, axis=1, tiled=True)], options.k)

    in_specs = (P(), P(axes), P(axes))
    search_shards = jax.shard_map(search_shard, mesh=mesh, in_specs=in_specs, out_specs=P(), check_vma=False)
    return search_shards(queries, keys, classes_M)


@functools.partial(jax.jit, static_argnames="measure")
def all_distances(queries: Any, keys: Any, measure: Callable[[Any, Any], Array]) -> Array:
    """Return the distance [Q, N] between every query and every key; rounding makes some slightly negative."""
    with jax.named_scope("search"), jax.default_matmul_precision("highest"):
        return jax.vmap(measure, (0, None))(queries, keys)


def merge(parts: Sequence[Neighbours], k: int) -> Neighbours:
    """Return the k nearest of several sets of neighbours, or all if there are fewer.

    The sets are in the order of their anchors' indices.
    """
    joined = jax.tree.map(lambda *arrays: jnp.concatenate(arrays, -1), *parts)
    _, nearest_Qk = jax.lax.top_k(-joined.distances_Qk, min(k, joined.distances_Qk.shape[-1]))
    return jax.tree.map(lambda array: jnp.take_along_axis(array, nearest_Qk, -1), joined)


def vote(near: Neighbours, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the class [Q] with the most votes, the lowest of several, and the shares of all classes [Q, C]."""
    classes_Qk = np.asarray(near.classes_Qk)
    votes_QC = np.zeros((len(classes_Qk), num_classes))
    np.add.at(votes_QC, (np.arange(len(classes_Qk))[:, None], classes_Qk), 1)
    return votes_QC.argmax(-1), votes_QC / classes_Qk.shape[1]


def _search_device(queries: Any, keys: Any, classes_M: Array | np.ndarray, options: SearchOptions) -> Neighbours:
    """Return the k nearest anchors of every query on one device, tile by tile."""
    num_queries = rowwise.num_rows(queries)
    num_anchors = len(classes_M)
    queries_per_tile = min(options.queries_per_tile, num_queries)
    anchors_per_tile = min(options.anchors_per_tile, num_anchors)
    k = min(options.k, num_anchors)

    def visit_anchors(best: Neighbours, first_anchor: Array) -> tuple[Neighbours, None]:
        start, (keys_m, classes_m) = _tile((keys, classes_M), first_anchor, num_anchors, anchors_per_tile)
        is_skipped_m = (start + jnp.arange(anchors_per_tile) < first_anchor) | (classes_m < 0)

        def visit_queries(merged: Neighbours, first_query: Array) -> tuple[Neighbours, None]:
            # From `best`, not `merged`: the last tile of queries overlaps the one before, and must not meet the same
            # anchors twice.
            begin, (queries_q, best_q) = _tile((queries, best), first_query, num_queries, queries_per_tile)
            # For divergences one matrix product, [m, W] · [W, q].
            distances_mq = jax.vmap(options.measure, (0, None), 1)(queries_q, keys_m)
            nearness_mq = jnp.where(is_skipped_m[:, None], -jnp.inf, -distances_mq)
            nearness_qk, indices_qk = _nearest(nearness_mq, min(k, anchors_per_tile))
            near = merge([best_q, Neighbours(-nearness_qk, start + indices_qk, classes_m[indices_qk])], k)
            put = functools.partial(jax.lax.dynamic_update_slice_in_dim, start_index=begin, axis=0)
            return jax.tree.map(put, merged, near), None

        return jax.lax.scan(visit_queries, best, jnp.arange(0, num_queries, queries_per_tile))

    with jax.named_scope("search"), jax.default_matmul_precision("highest"):
        shape = (num_queries, k)
        none = Neighbours(jnp.full(shape, jnp.inf), jnp.zeros(shape, jnp.int32), jnp.zeros(shape, classes_M.dtype))
        nearest, _ = jax.lax.scan(visit_anchors, none, jnp.arange(0, num_anchors, anchors_per_tile))
        return nearest


def _tile(tree: Any, first: Array, num_rows: int, size: int) -> tuple[Array, Any]:
    """Return the first row of a tile, and its rows of all arrays; the last tile overlaps the one before."""
    start = jnp.minimum(first, num_rows - size)
    return start, jax.tree.map(lambda array: jax.lax.dynamic_slice_in_dim(array, start, size), tree)


def _nearest(nearness_mq: Array, k: int) -> tuple[Array, Array]:
    """Return each query's k largest numbers and their indices, [q, k]; equal numbers are in the order of their indices.

    The k largest are in the k groups of rows whose maxima are largest. So one number per group is sorted, and then
    those of k groups.
    """
    num_groups = -(-len(nearness_mq) // GROUP)
    if num_groups < 2 * k:
        return jax.lax.top_k(nearness_mq.T, k)
    missing = num_groups * GROUP - len(nearness_mq)
    nearness_gGq = jnp.pad(nearness_mq, ((0, missing), (0, 0)), constant_values=-jnp.inf)
    nearness_gGq = nearness_gGq.reshape(num_groups, GROUP, -1)
    # Ascending, so that ties keep the order of their indices.
    groups_qk = jnp.sort(jax.lax.top_k(nearness_gGq.max(1).T, k)[1])
    nearness_qkG = nearness_gGq[groups_qk, :, jnp.arange(len(groups_qk))[:, None]]
    nearness_qk, within_qk = jax.lax.top_k(nearness_qkG.reshape(len(groups_qk), -1), k)
    groups_qk = jnp.take_along_axis(groups_qk, within_qk // GROUP, -1)
    return nearness_qk, groups_qk * GROUP + within_qk % GROUP
