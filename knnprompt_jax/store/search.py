"""A search, from states to neighbours, in bounded memory: queries in blocks, anchors in tiles, host anchors streamed."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

from knnprompt_jax import errors, lm
from knnprompt_jax.store import codec as codec_lib
from knnprompt_jax.store import distances, kernel, placement

CPU_CACHED_BYTES = 24 * 2**20  # A CPU allocates larger arrays anew at each step.
TPU_DISTANCE_BYTES = 32 * 2**20  # A tile's distances that stay in a TPU's memory on the chip.
_DISTANCE_COPIES = 3  # XLA's copies of a tile's distances, at most.


@dataclasses.dataclass(frozen=True)
class SearchOptions:
    """The number of neighbours, the distance, and the recall of an approximate search (None: exact)."""

    k: int
    distance: str = "kl"
    approximate_recall: float | None = None


@dataclasses.dataclass(frozen=True)
class SearchPlan:
    """The sizes of a search, in rows and in bytes on each device.

    Attributes:
        queries_per_block: queries that are encoded and searched at a time.
        anchors_per_transfer: anchors that come from host memory at a time; 0 if they are on the device.
        kernel: the options of `kernel.search`, with the queries and anchors per tile.
        nbytes: all memory of the search, beside device-resident anchors, the head and the resulting neighbours.
    """

    queries_per_block: int
    anchors_per_transfer: int
    kernel: kernel.Options
    nbytes: int


def make_plan(
    codec: codec_lib.Codec, anchors: placement.Anchors, num_queries: int, options: SearchOptions, memory: int
) -> SearchPlan:
    """Choose the sizes of a search that fits in `memory` bytes on each device.

    Subtract the encoder's memory; give a quarter of the rest to queries, then half of the remainder to transfers from host
    memory, if anchors are there. The tiles of the kernel get what is left. A tile holds its queries, distances and a sorted
    copy of them, the copies of keys that the distance makes, and float32 copies of narrower keys; one of several tiles also
    holds a copy of its keys. A deterministic store has blocks and tiles of one size.

    Raises:
        UserError: the memory does not hold a single query and anchor, or one deterministic tile.
    """
    mesh, _ = placement.split_over(anchors.keys)
    distance, shards = distances.get(options.distance), mesh.size if mesh else 1
    width = codec.head.rows_VE.shape[1]
    state = jax.eval_shape(lambda: lm.States(jnp.zeros((1, width)), jnp.zeros(1)))
    anchor = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape[1:]), leaf.dtype), anchors.keys)
    query = jax.eval_shape(lambda state: codec.queries(state, distance), state)
    key = jax.eval_shape(lambda anchor: codec.references(anchor, distance), anchor)
    query_bytes, key_bytes, transfer_row_bytes = map(placement.row_bytes, (query, key, anchors))
    left = memory - codec.working_bytes(num_queries)
    block = max(1, min(num_queries, left // 4 // (2 * query_bytes)))
    if codec.deterministic:  # Whole tiles of queries, and whole tiles of rows on each device.
        block = placement.filled_up(placement.ROWS_PER_TILE * shards, None, kernel.QUERIES_PER_TILE)
    left -= 2 * block * query_bytes  # The search copies them into its tiles.
    searched, transfer = placement.num_rows(anchors) // shards, 0
    if anchors.on_host:
        searched = transfer = max(codec.tile, min(searched, left // 4 // transfer_row_bytes) // codec.tile * codec.tile)
        left -= 2 * transfer * transfer_row_bytes

    measured_by = codec.measured_by(distance)
    widened = sum(4 * math.prod(leaf.shape[1:]) for leaf in jax.tree.leaves(key))  # Bytes of a key in float32.
    queries = kernel.QUERIES_PER_TILE
    if not codec.deterministic:
        queries = max(1, min(queries, block, left // (2 * widened)))
    left -= queries * widened
    tile_bytes_per_anchor = widened * (measured_by.copies + (key_bytes < widened)) + queries * _DISTANCE_COPIES * 4
    room, most, tile = left, searched, placement.TILE
    platform = mesh.devices.flat[0].platform if mesh else jax.default_backend()
    if platform == "cpu" and key_bytes <= 2 * tile_bytes_per_anchor:  # To copy wider keys costs more than to allocate.
        room = min(room, CPU_CACHED_BYTES)
    elif platform == "tpu":
        most = min(searched, TPU_DISTANCE_BYTES // (4 * queries))
    if codec.deterministic or most < searched or searched * tile_bytes_per_anchor > room:
        tile_bytes_per_anchor += key_bytes
    if not codec.deterministic:
        tile = max(1, min(most, room // tile_bytes_per_anchor))
        if kernel.GROUP < tile < searched:
            tile -= tile % kernel.GROUP
    left -= tile * tile_bytes_per_anchor
    if left < 0:
        raise errors.UserError(
            f"memory_mb={memory / 2**20:g}: this search needs more than that, about {(memory - left) / 2**20:.1f} MB"
        )
    kernel_options = kernel.Options(options.k, measured_by, queries, tile, options.approximate_recall)
    return SearchPlan(block, transfer, kernel_options, memory - left)


def run(
    codec: codec_lib.Codec, anchors: placement.Anchors, states: lm.States, options: SearchOptions, plan: SearchPlan
) -> kernel.Neighbours:
    """Return the neighbours of each state, block by block, from anchors on the device or streamed from host memory."""
    (mesh, _), distance, parts = placement.split_over(anchors.keys), distances.get(options.distance), []

    def search(queries: Any, anchors: placement.Anchors) -> kernel.Neighbours:
        return kernel.search(queries, codec.references(anchors.keys, distance), anchors.labels_N, plan.kernel)

    for start in range(0, max(1, len(states)), plan.queries_per_block):
        block = states[start : start + plan.queries_per_block]
        if start or codec.deterministic:  # All blocks have one shape, so that there is one compilation.
            block = placement.pad(block, plan.queries_per_block)
        queries = codec.queries(placement.split(block, mesh) if mesh else block, distance)
        best = [] if anchors.on_host else [search(queries, anchors)]
        transfers = placement.stream(anchors, plan.anchors_per_transfer) if anchors.on_host else ()
        for first, transferred in transfers:
            near = search(queries, transferred)
            jax.block_until_ready(best)  # No more than two transfers are on the device at a time.
            near = dataclasses.replace(near, indices_Qk=near.indices_Qk + first)
            best = [kernel.merge([*best, near], options.k)]
        parts.append(placement.take(best[0], slice(0, plan.queries_per_block)))
    return jax.tree.map(lambda *blocks: jnp.concatenate(blocks)[: len(states)], *parts)
