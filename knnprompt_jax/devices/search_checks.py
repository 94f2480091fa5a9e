"""Compare the search of both kinds of stores over all devices with NumPy in float64."""

import itertools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from knnprompt_jax.common import parallel
from knnprompt_jax.datastore import StoreOptions, distances
from knnprompt_jax.datastore import search as search_lib
from knnprompt_jax.datastore import store as store_lib
from knnprompt_jax.devices import checks, worlds
from knnprompt_jax.devices.checks import Inputs, Line
from knnprompt_jax.inference import lm
from knnprompt_jax.models import head as head_lib

_K = 7
_SEARCHES = (*itertools.product(("dense", "factored"), distances.DIRECTIONS), ("dense", "kl_labels"), ("dense", "l2"))
# With 2 MiB in several tiles of anchors and queries; with 512 MiB, all anchors in one tile are sorted by groups.
_LARGE_SEARCHES = (("dense", "kl", 2.0), ("factored", "kl", 2.0), ("dense", "l2", 2.0), ("factored", "kl", 512.0))
_MANY_ANCHORS = 1009  # At least 2 k groups of `search_lib.GROUP`.
_MANY_QUERIES = 307  # More than `search_lib.QUERIES_PER_TILE`.
_SMALL_VOCABULARY = 499
# Operands rounded to bfloat16 or TF32 err by more.
_NATS = 1e-4  # Float32 errs by 2e-5 where logits are about 90 nats.
_LENGTH = 1e-5  # Float32 errs by 5e-7 in the length of vectors of about 20.


def check_search(inputs: Inputs) -> Iterator[Line]:
    """Search over all devices; in tiles on one device; integer keys, whose equal distances take the lower index."""
    del inputs
    mesh = parallel.make_mesh()
    small = worlds.draw()
    for kind, distance in _SEARCHES:
        yield _compare(small, mesh, StoreOptions(kind), distance)
    large = worlds.draw(_MANY_ANCHORS, _MANY_QUERIES, _SMALL_VOCABULARY)
    single = parallel.make_mesh_on(jax.local_devices()[:1], 1, 1)
    for kind, distance, memory_mb in _LARGE_SEARCHES:
        yield _compare(large, single, StoreOptions(kind, memory_mb), distance)
    yield checks.compare("ties, neighbours that differ", 0, count_wrong_ties, mesh)


def _compare(world: worlds.World, mesh: Mesh, options: StoreOptions, distance: str) -> Line:
    place = f"{len(world.hidden_NE)} anchors, {options.memory_mb:.0f} MiB"
    compared = f"{options.kind}, {distance}, {place}, against float64, {distances.get(distance).unit}"
    allowed = _LENGTH if distance == "l2" else _NATS
    return checks.compare(compared, allowed, _deviation, world, mesh, options, distance)


def _deviation(world: worlds.World, mesh: Mesh, options: StoreOptions, distance: str) -> float:
    """Return the larger of two errors: of the reported distances, and of the true distances of the reported anchors.

    Both are compared with the true k smallest. A missing or repeated anchor counts as infinitely far.
    """
    near = search(world, mesh, options, distance, _K)
    wanted_QN = worlds.distances(distance, world.hidden_QE, world.hidden_NE, world.logp_QV, world.logk_NV)
    indices_Qk = np.asarray(near.indices_Qk)
    exist = (indices_Qk >= 0) & (indices_Qk < wanted_QN.shape[1])
    if not exist.all() or any(len(np.unique(row)) < len(row) for row in indices_Qk):
        return np.inf
    sorted_Qk = np.sort(wanted_QN)[:, :_K]
    found_Qk = np.take_along_axis(wanted_QN, indices_Qk, -1)
    return checks.largest(np.stack([near.distances_Qk - sorted_Qk, found_Qk - sorted_Qk]))


def search(world: worlds.World, mesh: Mesh, options: StoreOptions, distance: str, k: int) -> search_lib.Neighbours:
    """Search a store of the world's anchors, which is split over the mesh."""
    put = (lambda array: parallel.put(array, mesh, P())) if mesh.size > 1 else jnp.asarray
    head = head_lib.Head(put(world.head_VE))
    anchors = lm.States(put(world.hidden_NE), put(world.log_z_N))
    queries = lm.States(put(world.hidden_QE), put(world.log_z_Q))
    classes = np.arange(len(anchors)) % len(worlds.LABEL_TOKENS)
    store = store_lib.build(options, distance, head, anchors, classes, worlds.LABEL_TOKENS)
    return jax.tree.map(np.asarray, parallel.replicate(store.search(queries, k)))


def count_wrong_ties(mesh: Mesh) -> float:
    """Search integer keys over a mesh and count the neighbours that are not those of a stable sort."""
    rng = np.random.default_rng(3)
    queries_QE = rng.integers(0, 3, (7, 2)).astype(np.float32)
    keys_NE = rng.integers(0, 3, (61, 2)).astype(np.float32)
    head_VE = np.zeros((1, 2), np.float32)
    world = worlds.World(head_VE, keys_NE, keys_NE[:, 0], keys_NE, queries_QE, queries_QE[:, 0], queries_QE)
    found = search(world, mesh, StoreOptions("dense"), "l2", 23)
    distances_QN = np.linalg.norm(queries_QE[:, None] - keys_NE, axis=-1)
    wanted_Qk = np.argsort(distances_QN, -1, kind="stable")[:, :23]
    return float((found.indices_Qk != wanted_Qk).sum())
