"""Rows of arrays on one device or split over the devices of a mesh, and functions mapped over rows where they are.

JAX splits rows evenly or not at all, so a split store is padded with rows of class −1 that no search finds.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Format, Layout
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from knnprompt_jax.common import parallel

PADDING = -1  # The class of a row of padding.
ROWS_PER_TILE = 256  # Rows that `map_rows` processes at a time,
ROWS_PER_TILE_OF_LOGITS = 64  # or this number if each row needs the logits of all tokens.


def num_rows(tree: Any) -> int:
    """Return the number of rows of a pytree's arrays."""
    return jax.tree.leaves(tree)[0].shape[0]


def row_bytes(tree: Any) -> int:
    """Return the bytes of one row of all arrays of a pytree."""
    return sum(leaf.dtype.itemsize * int(np.prod(leaf.shape[1:])) for leaf in jax.tree.leaves(tree))


def take(tree: Any, rows: slice | np.ndarray) -> Any:
    """Return some rows of every array; selecting all of them copies nothing."""
    if isinstance(rows, slice) and rows.indices(num_rows(tree)) == (0, num_rows(tree), 1):
        return tree
    return jax.tree.map(lambda array: array[rows], tree)


def pad(tree: Any, count: int, value: int = 0) -> Any:
    """Return at least `count` rows of every array; missing rows have this value."""

    def extend(array: Any) -> Any:
        missing = count - len(array)
        if missing <= 0:
            return array
        library = np if isinstance(array, np.ndarray) else jnp
        widths = [(0, missing)] + [(0, 0)] * (array.ndim - 1)
        return library.pad(array, widths, constant_values=value)

    return jax.tree.map(extend, tree)


def split(tree: Any, mesh: Mesh) -> Any:
    """Return arrays split by row over all devices of the mesh, padded with zeros."""
    padded = pad(tree, parallel.round_up(num_rows(tree), mesh.size))
    return jax.tree.map(lambda array: jax.device_put(array, row_format(mesh, array.ndim)), padded)


def row_format(mesh: Mesh, num_axes: int) -> NamedSharding | Format:
    """Return the sharding that splits rows over all devices of the mesh; on TPUs each row is also contiguous.

    By default a TPU stores an array column by column if 128 does not divide its width. A search in tiles would then
    copy all of it.
    """
    sharding = NamedSharding(mesh, P(parallel.AXES))
    device = mesh.abstract_mesh.abstract_device
    return Format(Layout(tuple(range(num_axes))), sharding) if device and device.platform == "tpu" else sharding


def find_mesh(tree: Any) -> Mesh | None:
    """Return the mesh of more than one device whose devices have the arrays, if any."""
    sharding = getattr(jax.tree.leaves(tree)[0], "sharding", None)
    if isinstance(sharding, NamedSharding) and sharding.mesh.size > 1:
        return sharding.mesh  # type: ignore[return-value]
    return None


def split_over(tree: Any) -> tuple[Mesh | None, Any]:
    """Return the mesh and the axes over which arrays are split by row, or (None, None)."""
    leaf = jax.tree.leaves(tree)[0]
    sharding = None if isinstance(leaf, jax.core.Tracer) else getattr(leaf, "sharding", None)
    if isinstance(sharding, NamedSharding) and sharding.spec and sharding.spec[0] is not None:
        return sharding.mesh, sharding.spec[0]  # type: ignore[return-value]
    return None, None


def map_rows(
    function: Callable[..., Any], shared: Any, rows: Any, *options: Any, rows_per_tile: int = ROWS_PER_TILE
) -> Any:
    """Return `function(shared, row, *options)` for every row, tile by tile, in float32 products; options are static.

    Rows that are split over a mesh are processed where they are, and so is the result; `shared` is copied to each
    device.
    """
    mesh, axes = split_over(rows)
    return _map_rows(
        shared, rows, function=function, options=options, rows_per_tile=rows_per_tile, mesh=mesh, axes=axes
    )


@functools.partial(jax.jit, static_argnames=("function", "options", "rows_per_tile", "mesh", "axes"))
def _map_rows(
    shared: Any,
    rows: Any,
    *,
    function: Callable[..., Any],
    options: tuple,
    rows_per_tile: int,
    mesh: Mesh | None,
    axes: Any,
) -> Any:
    def map_shard(shared: Any, rows: Any) -> Any:
        batch_size = min(rows_per_tile, max(1, num_rows(rows)))
        return jax.lax.map(lambda row: function(shared, row, *options), rows, batch_size=batch_size)

    if mesh is not None:
        map_shard = jax.shard_map(map_shard, mesh=mesh, in_specs=(P(), P(axes)), out_specs=P(axes), check_vma=False)
    with jax.default_matmul_precision("highest"):
        return map_shard(shared, rows)
