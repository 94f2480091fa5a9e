"""Rows of arrays on one device, split over a mesh, or in host memory, and functions mapped over rows where they lie.

JAX splits rows evenly or not at all, so a split store is padded with rows of class −1 that no search finds.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.experimental.layout import Format, Layout
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from knnprompt_jax import parallel, rounding

Array = jax.Array
PADDING = -1
TILE = 256  # Anchors per tile of a deterministic store.
ROWS_PER_TILE = 256  # Rows that a function is mapped over at a time,
ROWS_OF_LOGITS = 64  # and where each of them has the logits of all tokens.


@struct.dataclass
class Anchors:
    """Keys (a pytree of arrays with N rows) and classes of anchors; class −1 is padding."""

    keys: Any
    labels_N: Array | np.ndarray

    @property
    def on_host(self) -> bool:
        return isinstance(self.labels_N, np.ndarray)


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


def concatenate(first: Any, second: Any) -> Any:
    """Return the rows of `first` followed by those of `second`, in host memory if they are there."""
    return jax.tree.map(lambda a, b: _library(a).concatenate([a, b]), first, second)


def pad(tree: Any, count: int) -> Any:
    """Return at least `count` rows of every array; missing rows are zero."""
    return jax.tree.map(
        lambda a: _library(a).pad(a, [(0, count - len(a))] + [(0, 0)] * (a.ndim - 1)) if len(a) < count else a, tree
    )


def _library(array: Any) -> Any:
    return np if isinstance(array, np.ndarray) else jnp


def filled_up(count: int, mesh: Mesh | None, tile: int = 1) -> int:
    """Return the smallest number of rows ≥ `count` that divides evenly into tiles on each device of the mesh, if any."""
    unit = tile * (mesh.size if mesh else 1)
    return rounding.round_up(count, unit)


def split(tree: Any, mesh: Mesh) -> Any:
    """Return arrays split by row over all devices of the mesh, padded with zeros."""
    rows = pad(tree, filled_up(num_rows(tree), mesh))
    return jax.tree.map(lambda array: jax.device_put(array, by_rows(mesh, array.ndim)), rows)


def by_rows(mesh: Mesh, num_axes: int) -> NamedSharding | Format:
    """Return the sharding that splits rows over all devices of the mesh; on TPUs each row is also contiguous.

    By default a TPU stores an array column by column if 128 does not divide its width, and a search in tiles copied all of it.
    """
    sharding = NamedSharding(mesh, P(parallel.AXES))
    device = mesh.abstract_mesh.abstract_device
    return Format(Layout(tuple(range(num_axes))), sharding) if device and device.platform == "tpu" else sharding


def place(anchors: Anchors, mesh: Mesh | None, on_host: bool = False, tile: int = 1) -> Anchors:
    """Put anchors in host memory, split over the devices of the mesh, or on the default device; padded to whole tiles."""
    mesh, labels_N = None if on_host else mesh, np.asarray(anchors.labels_N)
    count = filled_up(len(labels_N), mesh, tile)
    padding = np.full(count - len(labels_N), PADDING, labels_N.dtype)
    anchors = Anchors(pad(anchors.keys, count), np.concatenate([labels_N, padding]))
    return split(anchors, mesh) if mesh else jax.tree.map(np.asarray if on_host else jnp.asarray, anchors)


def stream(anchors: Anchors, count: int) -> Iterator[tuple[int, Anchors]]:
    """Yield device copies of `count` host rows with the index of the first; the next rows travel while these are used."""
    ahead = jax.device_put(take(anchors, slice(0, count)))
    for start in range(0, num_rows(anchors), count):
        current, ahead = ahead, jax.device_put(take(anchors, slice(start + count, start + 2 * count)))
        yield start, current


def map_rows(function: Callable[..., Any], shared: Any, rows: Any, *options: Any, tile: int = ROWS_PER_TILE) -> Any:
    """Return `function(shared, row, *options)` for every row, tile by tile, in float32 products; options are static.

    Rows that are split over a mesh are processed where they lie, and so is the result; `shared` is copied to each device.
    """
    mesh, axes = split_over(rows)
    return _map_rows(shared, rows, function=function, options=options, tile=tile, mesh=mesh, axes=axes)


def split_over(rows: Any) -> tuple[Mesh | None, Any]:
    """Return the mesh and the axes over which arrays are split by row, or (None, None)."""
    leaf = jax.tree.leaves(rows)[0]
    sharding = None if isinstance(leaf, jax.core.Tracer) else getattr(leaf, "sharding", None)
    if isinstance(sharding, NamedSharding) and sharding.spec and sharding.spec[0] is not None:
        return sharding.mesh, sharding.spec[0]  # type: ignore[return-value]
    return None, None


@functools.partial(jax.jit, static_argnames=("function", "options", "tile", "mesh", "axes"))
def _map_rows(
    shared: Any, rows: Any, *, function: Callable[..., Any], options: tuple, tile: int, mesh: Mesh | None, axes: Any
) -> Any:
    def run(shared: Any, rows: Any) -> Any:
        batch_size = min(tile, max(1, num_rows(rows)))
        return jax.lax.map(lambda row: function(shared, row, *options), rows, batch_size=batch_size)

    if mesh is not None:
        run = jax.shard_map(run, mesh=mesh, in_specs=(P(), P(axes)), out_specs=P(axes), check_vma=False)
    with jax.default_matmul_precision("highest"):
        return run(shared, rows)
