"""The search of either store over all devices against NumPy in float64, and ties."""

import itertools
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from knnprompt_jax import distances, lm, parallel
from knnprompt_jax.check import check, worlds
from knnprompt_jax.check import subject as subject_lib
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.settings import stores
from knnprompt_jax.store import kernel, rowwise
from knnprompt_jax.store import store as store_lib

_K = 7
_SEARCHES = (*itertools.product(("dense", "factored"), stores.DIRECTIONS), ("dense", "kl_labels"), ("dense", "l2"))
_REASON = "float32 errs by up to this where logits are about 90 nats"


def run(subject: subject_lib.Subject) -> Iterator[check.Finding]:
    """Search random anchors; then integer keys, whose equal distances must take the lower index."""
    del subject
    mesh = parallel.make_mesh()
    world = worlds.draw()
    for kind, distance in _SEARCHES:
        unit = distances.get(distance).unit
        near = jax.tree.map(np.asarray, parallel.replicate(_search(world, mesh, kind, distance)))
        yield check.Comparison(
            f"{kind}, {distance}, k nearest against float64, {unit}",
            deviation(near, world.distances(distance)),
            worlds.MARGIN,
            _REASON,
        )
    yield check.Comparison("ties, neighbours that differ", count_wrong_ties(mesh), 0, "distances of integers are exact")


def deviation(near: kernel.Neighbours, wanted_QN: np.ndarray) -> float:
    """Return how far the found distances, and those of the found anchors, are from the k smallest.

    An anchor that does not exist, or that was found twice, counts as infinitely far.
    """
    indices_Qk = np.asarray(near.indices_Qk)
    exist = (indices_Qk >= 0) & (indices_Qk < wanted_QN.shape[1])
    if not exist.all() or any(len(np.unique(row)) < len(row) for row in indices_Qk):
        return np.inf
    sorted_Qk = np.sort(wanted_QN)[:, : indices_Qk.shape[1]]
    of_found_Qk = np.take_along_axis(wanted_QN, indices_Qk, -1)
    errors = [near.distances_Qk - sorted_Qk, of_found_Qk - sorted_Qk]
    return float(np.abs(errors).max())


def _search(world: worlds.World, mesh: Mesh, kind: str, distance: str) -> kernel.Neighbours:
    """Search a store of the world's anchors that is split over the mesh."""
    put = _put_over(mesh)
    head = head_lib.Head(put(world.head_VE))
    anchors = lm.States(put(world.hidden_NE), put(world.log_z_N))
    queries = lm.States(put(world.hidden_QE), put(world.log_z_Q))
    classes = np.arange(len(anchors)) % len(worlds.LABEL_IDS)
    store = store_lib.build(stores.StoreOptions(kind), distance, head, anchors, classes, worlds.LABEL_IDS)
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
    options = kernel.Options(23, distances.get("l2").measure)
    found = parallel.replicate(kernel.search(_put_over(mesh)(queries_QE), keys, classes, options))
    distances_QN = np.linalg.norm(queries_QE[:, None] - keys_NE, axis=-1)
    wanted_Qk = np.argsort(distances_QN, -1, kind="stable")[:, :23]
    return float((np.asarray(found.indices_Qk) != wanted_Qk).sum())


def _put_over(mesh: Mesh) -> Callable[[np.ndarray], jax.Array]:
    """Return the function that copies an array to every device."""
    return (lambda array: parallel.put(array, mesh, P())) if mesh.size > 1 else jnp.asarray


CHECKS = (check.Check("search", run),)
