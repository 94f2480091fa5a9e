"""The sizes of a search that fits in bounded memory: queries in blocks and tiles, anchors in tiles."""

import dataclasses
from typing import Any

import jax

from knnprompt_jax import errors, rounding
from knnprompt_jax.store import kernel, rowwise
from knnprompt_jax.store.dense import DenseCodec
from knnprompt_jax.store.factored import FactoredCodec

Codec = DenseCodec | FactoredCodec
"""A kind of store: how states become keys and queries of the same size."""

CPU_CACHED_BYTES = 24 * 2**20  # A CPU allocates larger arrays anew at each step.
TPU_DISTANCE_BYTES = 32 * 2**20  # A tile's distances that stay in a TPU's memory on the chip.
_DISTANCE_COPIES = 3  # XLA's copies of a tile's distances, at most: the distances, and a sorted copy.


@dataclasses.dataclass(frozen=True)
class SearchPlan:
    """The sizes of a search.

    Attributes:
        queries_per_block: the number of queries that are encoded and searched at a time.
        kernel: the options of `kernel.search`, with the queries and anchors per tile.
        num_bytes: the memory of the search on each device, beside the anchors, the head and the neighbours.
    """

    queries_per_block: int
    kernel: kernel.Options
    num_bytes: int


def make(codec: Codec, keys: Any, num_queries: int, k: int, memory: int) -> SearchPlan:
    """Choose the sizes of a search that fits in `memory` bytes on each device.

    The memory holds what encodes a block of queries; two copies of the encoded block, because the kernel copies them
    into its tiles; a tile of queries; and a tile of anchors with its distances. A deterministic store has blocks and
    tiles of one size.

    Raises:
        UserError: the memory does not hold a single query and anchor, or one deterministic tile.
    """
    mesh, _ = rowwise.split_over(keys)
    num_shards = mesh.size if mesh else 1
    platform = mesh.devices.flat[0].platform if mesh else jax.default_backend()
    key_bytes = rowwise.row_bytes(keys)  # A query is as large.
    encoding_bytes = codec.working_bytes(num_queries)
    if codec.deterministic:
        block = rounding.round_up(rowwise.TILE * num_shards, kernel.QUERIES_PER_TILE)
        tile = kernel.QUERIES_PER_TILE
    else:
        block = _queries_per_block(num_queries, key_bytes, memory - encoding_bytes)
        tile = _queries_per_tile(block, key_bytes, memory - encoding_bytes - 2 * block * key_bytes)
    query_bytes = encoding_bytes + (2 * block + tile) * key_bytes
    if codec.deterministic:
        anchors = rowwise.TILE
        anchor_bytes = anchors * (_distance_bytes(tile) + key_bytes)
    else:
        per_shard = rowwise.num_rows(keys) // num_shards
        anchors, anchor_bytes = _anchors_per_tile(per_shard, tile, key_bytes, memory - query_bytes, platform)
    num_bytes = query_bytes + anchor_bytes
    if num_bytes > memory:
        raise errors.UserError(
            f"memory_mb={memory / 2**20:g}: this search needs about {num_bytes / 2**20:.1f} MiB; choose a higher memory_mb"
        )
    options = kernel.Options(k, codec.distance.measure, tile, anchors)
    return SearchPlan(block, options, num_bytes)


def _queries_per_block(num_queries: int, query_bytes: int, memory: int) -> int:
    """Return the number of queries whose two copies fill at most a quarter of the memory."""
    most = memory // 4 // (2 * query_bytes)
    return max(1, min(num_queries, most))


def _queries_per_tile(block: int, query_bytes: int, memory: int) -> int:
    """Return the number of queries of a block that fill at most half of the memory."""
    most = memory // (2 * query_bytes)
    return max(1, min(kernel.QUERIES_PER_TILE, block, most))


def _distance_bytes(queries_per_tile: int) -> int:
    """Return the bytes of the distances of one anchor in a tile."""
    return 4 * _DISTANCE_COPIES * queries_per_tile


def _anchors_per_tile(
    per_shard: int, queries_per_tile: int, key_bytes: int, memory: int, platform: str
) -> tuple[int, int]:
    """Return the number of anchors in a tile and the bytes of the tile; one of several tiles also copies its keys."""
    distance_bytes = _distance_bytes(queries_per_tile)
    most = per_shard
    if platform == "cpu" and key_bytes <= 2 * distance_bytes:  # To copy wider keys costs more than to allocate.
        memory = min(memory, CPU_CACHED_BYTES)
    elif platform == "tpu":
        most = min(per_shard, TPU_DISTANCE_BYTES // (4 * queries_per_tile))
    if most == per_shard and per_shard * distance_bytes <= memory:
        return per_shard, per_shard * distance_bytes
    anchor_bytes = distance_bytes + key_bytes
    tile = max(1, min(most, memory // anchor_bytes))
    if kernel.GROUP < tile < per_shard:
        tile -= tile % kernel.GROUP
    return tile, tile * anchor_bytes
