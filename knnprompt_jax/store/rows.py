"""A function of one row mapped over all rows: tile by tile, and on every device that holds some of them."""

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

ROWS_PER_TILE = 64


def map_rows(function: Callable[..., Any], shared: Any, rows: Any, *options: Any) -> Any:
    """`function(shared, row, *options)` for every row, in float32 products; options are static.

    Rows that are split over a mesh are worked on where they lie, and so is the result; `shared` comes whole to each device.
    """
    mesh, axes = split_over(rows)
    return _map_rows(shared, rows, function=function, options=options, mesh=mesh, axes=axes)


def working_bytes(num_tokens: int) -> int:
    """Memory that a function needs at most which holds logits of all tokens: those of a tile of rows, in three copies."""
    return 3 * 4 * ROWS_PER_TILE * num_tokens


def split_over(rows: Any) -> tuple[Mesh | None, Any]:
    """The mesh, and those of its axes, over which arrays are split by row; (None, None) where they are not."""
    leaf = jax.tree.leaves(rows)[0]
    sharding = None if isinstance(leaf, jax.core.Tracer) else getattr(leaf, "sharding", None)
    mesh = getattr(sharding, "mesh", None)
    if isinstance(sharding, NamedSharding) and sharding.spec and sharding.spec[0] is not None:
        return mesh, sharding.spec[0]
    return None, None


@functools.partial(jax.jit, static_argnames=("function", "options", "mesh", "axes"))
def _map_rows(
    shared: Any, rows: Any, *, function: Callable[..., Any], options: tuple, mesh: Mesh | None, axes: Any
) -> Any:
    def run(shared: Any, rows: Any) -> Any:
        count = len(jax.tree.leaves(rows)[0])
        batch_size = min(ROWS_PER_TILE, max(1, count))
        return jax.lax.map(lambda row: function(shared, row, *options), rows, batch_size=batch_size)

    if mesh is not None:
        run = jax.shard_map(run, mesh=mesh, in_specs=(P(), P(axes)), out_specs=P(axes), check_vma=False)
    with jax.default_matmul_precision("highest"):
        return run(shared, rows)
