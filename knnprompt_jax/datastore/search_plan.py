"""The sizes of a search that fits in a given memory: queries in blocks and tiles, anchors in tiles."""

from typing import Any, NamedTuple

from knnprompt_jax.common import errors, parallel
from knnprompt_jax.datastore import dense, rowwise
from knnprompt_jax.datastore import search as search_lib
from knnprompt_jax.datastore.factored import FactoredCodec

Codec = dense.DenseCodec | FactoredCodec
"""A kind of store: how states become keys and queries of the same size."""

CPU_CACHED_BYTES = 24 * 2**20  # Larger arrays are allocated anew at every step on CPUs.
TPU_DISTANCE_BYTES = 32 * 2**20  # A tile's distances that stay in a TPU's memory on the chip.
# Bytes of a distance in a tile, in at most three arrays: inner products, negative distances, a copy in whole groups.
_DISTANCE_BYTES = 3 * 4


class SearchPlan(NamedTuple):
    """The sizes of a search.

    Attributes:
        queries_per_block: the number of queries that are encoded and searched at a time.
        options: the options of `search_lib.search`, with the queries and anchors per tile.
        num_bytes: the memory of the search on each device, beside the anchors, the head and the neighbours.
    """

    queries_per_block: int
    options: search_lib.SearchOptions
    num_bytes: int


def choose(codec: Codec, keys: Any, num_queries: int, k: int, memory: int) -> SearchPlan:
    """Choose the sizes of a search that fits in `memory` bytes on each device.

    The memory holds a block of queries, which is encoded and copied by the loop over tiles. It also holds a tile of
    queries, and a tile of anchors with its distances. The sizes of a deterministic store do not depend on the numbers
    of queries and anchors.

    Raises:
        UserError: the memory does not hold a single query and anchor, or one deterministic tile.
    """
    mesh, _ = rowwise.split_over(keys)
    num_shards = mesh.size if mesh else 1
    platform = mesh.devices.flat[0].platform if mesh else parallel.platform()
    key_bytes = rowwise.row_bytes(keys)  # A query is as large.
    encoding_bytes = codec.working_bytes(num_queries)
    if codec.deterministic:
        block = parallel.round_up(rowwise.ROWS_PER_TILE * num_shards, search_lib.QUERIES_PER_TILE)
        tile = search_lib.QUERIES_PER_TILE
        anchors = rowwise.ROWS_PER_TILE
        anchor_bytes = anchors * (_DISTANCE_BYTES * tile + key_bytes)
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


def _anchors_per_tile(
    per_shard: int, queries_per_tile: int, key_bytes: int, memory: int, platform: str
) -> tuple[int, int]:
    """Return the number of anchors in a tile and the bytes of the tile; one of several tiles also copies its keys."""
    distance_bytes = _DISTANCE_BYTES * queries_per_tile
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
