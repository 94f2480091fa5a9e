"""The search of either store over all devices against NumPy in float64, and ties."""

import itertools
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from knnprompt_jax import distances, lm, parallel
from knnprompt_jax.check import findings, worlds
from knnprompt_jax.check import inputs as inputs_lib
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.store import StoreOptions, rowwise
from knnprompt_jax.store import search as search_lib
from knnprompt_jax.store import store as store_lib

_K = 7
_SEARCHES = (*itertools.product(("dense", "factored"), distances.DIRECTIONS), ("dense", "kl_labels"), ("dense", "l2"))
# With 2 MiB in several tiles of anchors and queries; with 512 MiB, all anchors in one tile are sorted by groups.
_LARGE_SEARCHES = (("dense", "kl", 2.0), ("factored", "kl", 2.0), ("dense", "l2", 2.0), ("factored", "kl", 512.0))
_MANY_ANCHORS = 1009  # At least 2 k groups of `search_lib.GROUP`.
_MANY_QUERIES = 307  # More than `search_lib.QUERIES_PER_TILE`.
_SMALL_VOCABULARY = 499
_NATS = 1e-4  # Float32 errs by 2e-5 where logits are about 90 nats.
_LENGTH = 1e-5  # Float32 errs by 5e-7 in the length of vectors of about 20.
_REASON = "four times or more the largest error of float32 products; operands rounded to bfloat16 or TF32 err by more"


def run(inputs: inputs_lib.Inputs) -> Iterator[findings.Finding]:
    """Search over all devices; in tiles on one device; integer keys, whose equal distances take the lower index."""
    del inputs
    mesh = parallel.make_mesh()
    small = worlds.draw()
    for kind, distance in _SEARCHES:
        yield _compare(small, mesh, StoreOptions(kind), distance, "k nearest")
    large = worlds.draw(_MANY_ANCHORS, _MANY_QUERIES, _SMALL_VOCABULARY)
    single = parallel.make_mesh_on(jax.local_devices()[:1], 1, 1)
    for kind, distance, memory_mb in _LARGE_SEARCHES:
        title = f"k nearest of {_MANY_ANCHORS} in {memory_mb:.0f} MiB"
        yield _compare(large, single, StoreOptions(kind, memory_mb), distance, title)
    yield findings.compare(
        "ties, neighbours that differ", lambda: count_wrong_ties(mesh), 0, "distances of integers are exact"
    )


def _compare(
    world: worlds.World, mesh: Mesh, options: StoreOptions, distance: str, title: str
) -> findings.Comparison | findings.Failed:
    """Compare a search with float64."""

    def measure() -> float:
        near = jax.tree.map(np.asarray, parallel.replicate(_search(world, mesh, options, distance)))
        return deviation(near, world.distances(distance))

    unit = distances.get(distance).unit
    allowed = _LENGTH if distance == "l2" else _NATS
    return findings.compare(f"{options.kind}, {distance}, {title} against float64, {unit}", measure, allowed, _REASON)


def deviation(near: search_lib.Neighbours, wanted_QN: np.ndarray) -> float:
    """Return the larger of two errors: of the reported distances, and of the true distances of the reported anchors.

    Both are compared with the true k smallest. An anchor that does not exist, or that was found twice, counts as
    infinitely far.
    """
    indices_Qk = np.asarray(near.indices_Qk)
    exist = (indices_Qk >= 0) & (indices_Qk < wanted_QN.shape[1])
    if not exist.all() or any(len(np.unique(row)) < len(row) for row in indices_Qk):
        return np.inf
    sorted_Qk = np.sort(wanted_QN)[:, : indices_Qk.shape[1]]
    found_Qk = np.take_along_axis(wanted_QN, indices_Qk, -1)
    errors = [near.distances_Qk - sorted_Qk, found_Qk - sorted_Qk]
    return float(np.abs(errors).max())


def _search(world: worlds.World, mesh: Mesh, options: StoreOptions, distance: str) -> search_lib.Neighbours:
    """Search a store of the world's anchors that is split over the mesh."""
    put = _put_over(mesh)
    head = head_lib.Head(put(world.head_VE))
    anchors = lm.States(put(world.hidden_NE), put(world.log_z_N))
    queries = lm.States(put(world.hidden_QE), put(world.log_z_Q))
    classes = np.arange(len(anchors)) % len(worlds.LABEL_TOKENS)
    store = store_lib.build(options, distance, head, anchors, classes, worlds.LABEL_TOKENS)
    return store.search(queries, _K)


def count_wrong_ties(mesh: Mesh) -> float:
    """Search integer keys over a mesh and count the neighbours that are not those of a stable sort."""
    rng = np.random.default_rng(3)
    queries_QE = rng.integers(0, 3, (7, 2)).astype(np.float32)
    keys_NE = rng.integers(0, 3, (61, 2)).astype(np.float32)
    classes_N = np.zeros(61, np.int32)
    if mesh.size > 1:
        count = 61 + -61 % mesh.size
        keys, classes = rowwise.split((keys_NE, rowwise.pad(classes_N, count, rowwise.PADDING)), mesh)
    else:
        keys = jnp.asarray(keys_NE)
        classes = jnp.asarray(classes_N)
    options = search_lib.SearchOptions(23, distances.get("l2").measure)
    found = parallel.replicate(search_lib.search(_put_over(mesh)(queries_QE), keys, classes, options))
    distances_QN = np.linalg.norm(queries_QE[:, None] - keys_NE, axis=-1)
    wanted_Qk = np.argsort(distances_QN, -1, kind="stable")[:, :23]
    return float((np.asarray(found.indices_Qk) != wanted_Qk).sum())


def _put_over(mesh: Mesh) -> Callable[[np.ndarray], jax.Array]:
    """Return the function that copies an array to every device."""
    return (lambda array: parallel.put(array, mesh, P())) if mesh.size > 1 else jnp.asarray


CHECKS = (findings.Check("search", run),)
