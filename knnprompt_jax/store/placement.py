"""Where anchors lie: on one device, split by row over a mesh, or in host memory; and what is done to rows there.

JAX splits rows evenly or not at all, so a split store is filled up with rows of class −1, which no search finds.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.experimental.layout import Format, Layout
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from knnprompt_jax import parallel

Array = jax.Array
PADDING = -1
TILE = 256  # Anchors of a deterministic store that are worked on together.


@struct.dataclass
class Anchors:
    """Keys (a pytree of arrays with N rows) and classes of anchors; class −1 is padding."""

    keys: Any
    labels_N: Array | np.ndarray

    @property
    def on_host(self) -> bool:
        return isinstance(self.labels_N, np.ndarray)


def num_rows(tree: Any) -> int:
    return jax.tree.leaves(tree)[0].shape[0]


def row_bytes(tree: Any) -> int:
    return sum(leaf.dtype.itemsize * int(np.prod(leaf.shape[1:])) for leaf in jax.tree.leaves(tree))


def take(tree: Any, rows: slice | np.ndarray) -> Any:
    """Some rows of every array; all of them are no copy."""
    if isinstance(rows, slice) and rows.indices(num_rows(tree)) == (0, num_rows(tree), 1):
        return tree
    return jax.tree.map(lambda array: array[rows], tree)


def concatenate(first: Any, second: Any) -> Any:
    """Rows of `second` after those of `first`, in host memory if those are there."""
    return jax.tree.map(lambda a, b: _library(a).concatenate([a, b]), first, second)


def pad(tree: Any, count: int) -> Any:
    """`count` rows of every array, the missing ones zero."""
    return jax.tree.map(
        lambda a: _library(a).pad(a, [(0, count - len(a))] + [(0, 0)] * (a.ndim - 1)) if len(a) < count else a, tree
    )


def filled_up(count: int, mesh: Mesh | None, tile: int = 1) -> int:
    """The least number of rows, from `count`, that divides evenly into tiles on each device of the mesh, if there is one."""
    unit = tile * (mesh.size if mesh else 1)
    return -(-count // unit) * unit


def split(tree: Any, mesh: Mesh) -> Any:
    """Arrays split by row over all devices of the mesh, filled up with zeros."""
    rows = pad(tree, filled_up(num_rows(tree), mesh))
    return jax.tree.map(lambda array: jax.device_put(array, by_rows(mesh, array.ndim)), rows)


def by_rows(mesh: Mesh, num_axes: int) -> NamedSharding | Format:
    """Rows split over all devices of the mesh; on TPUs also each row in one piece.

    By default a TPU stores an array whose width 128 does not divide column by column, and a search in tiles copied all of it.
    """
    split = NamedSharding(mesh, P(parallel.AXES))
    device = mesh.abstract_mesh.abstract_device
    return Format(Layout(tuple(range(num_axes))), split) if device and device.platform == "tpu" else split


def place(anchors: Anchors, mesh: Mesh | None, on_host: bool = False, tile: int = 1) -> Anchors:
    """Anchors in host memory, or split by row over all devices of the mesh, or on the default device; filled up to whole tiles."""
    mesh, labels_N = None if on_host else mesh, np.asarray(anchors.labels_N)
    count = filled_up(len(labels_N), mesh, tile)
    padding = np.full(count - len(labels_N), PADDING, labels_N.dtype)
    anchors = Anchors(pad(anchors.keys, count), np.concatenate([labels_N, padding]))
    return split(anchors, mesh) if mesh else jax.tree.map(np.asarray if on_host else jnp.asarray, anchors)


def _library(array: Any) -> Any:
    """NumPy for arrays in host memory."""
    return np if isinstance(array, np.ndarray) else jnp


def stream(anchors: Anchors, count: int) -> Iterator[tuple[int, Anchors]]:
    """Device copies of `count` host rows at a time with the index of the first; the next travel while these are used."""
    ahead = jax.device_put(take(anchors, slice(0, count)))
    for start in range(0, num_rows(anchors), count):
        current, ahead = ahead, jax.device_put(take(anchors, slice(start + count, start + 2 * count)))
        yield start, current
