"""Every kind of store appends, removes, relabels and moves between memories; errors."""

import dataclasses
import re

import jax
import numpy as np
import pytest

from knnprompt_jax import errors
from knnprompt_jax.settings import stores
from knnprompt_jax.store import search
from knnprompt_jax.store import store as store_lib
from tests.store import worlds

MOVES = pytest.mark.parametrize("on_host", [False, True])


@pytest.fixture(scope="module", params=["dense", "factored"])
def store(request, world):
    return world.build(request.param)


@MOVES
def test_appending_is_building_from_all_at_once(world, store, on_host):
    part = world.build(store.codec.kind, rows=slice(0, 150))
    grown = worlds.placed(part, on_host=on_host).append(world.anchors[150:], world.labels_N[150:])
    assert len(part) == 150 and len(grown) == 211
    np.testing.assert_array_equal(grown.ids_N, np.arange(211))
    np.testing.assert_array_equal(grown.labels_N, world.labels_N)
    jax.tree.map(
        lambda old, new: np.testing.assert_array_equal(old, np.asarray(new)[:150]), part.anchors, grown.anchors
    )
    worlds.check_ranks(world.search(grown, 5).indices_Qk, world.distances("forward"))
    assert isinstance(grown.anchors.labels_N, np.ndarray) == on_host


@MOVES
def test_removing_by_id(world, store, on_host):
    store = dataclasses.replace(store, ids_N=1000 + 3 * np.arange(211))
    left = worlds.placed(store, on_host=on_host).remove([1000, 1000 + 3 * 210, 1000 + 3 * 7])
    kept_n = np.setdiff1d(np.arange(211), [0, 210, 7])
    np.testing.assert_array_equal(left.ids_N, store.ids_N[kept_n])
    np.testing.assert_array_equal(left.labels_N, world.labels_N[kept_n])
    nearest = world.search(left, 1)
    np.testing.assert_array_equal(nearest.indices_Qk[:, 0], world.distances("forward")[:, kept_n].argmin(-1))
    again = left.append(world.anchors[np.array([7])], [4])
    assert again.ids_N[-1] == left.ids_N.max() + 1


def test_relabelling_by_id(world, store):
    store = dataclasses.replace(store, ids_N=1000 + 3 * np.arange(211))
    changed = store.relabel([1000 + 3 * 7, 1000], [4, 2])
    expected_N = world.labels_N.copy()
    expected_N[[7, 0]] = 4, 2
    np.testing.assert_array_equal(changed.labels_N, expected_N)
    np.testing.assert_array_equal(np.asarray(changed.anchors.labels_N)[:211], expected_N)
    np.testing.assert_array_equal(store.labels_N, world.labels_N)
    nearest = world.search(changed, 3)
    np.testing.assert_array_equal(nearest.labels_Qk, expected_N[np.asarray(nearest.indices_Qk)])
    with pytest.raises(errors.UserError, match="id 7 is not in the store"):
        store.relabel([7], [0])


USER_ERRORS = {
    "id 211 is not in the store": lambda store, world: store.remove([2, 211]),
    "no anchor would be left": lambda store, world: store.remove(range(211)),
    "needs at least one anchor": lambda store, world: world.build("dense", rows=slice(0, 0)),
    "kind='sparse': choose from auto, dense, factored": lambda store, world: world.build("sparse"),
    "key_dtype='int8': choose from float32": lambda store, world: world.build("dense", key_dtype="int8"),
    "distance='bag': choose from forward, released": lambda store, world: world.build("auto", "bag"),
    "k=0: choose from 1 to 211": lambda store, world: world.search(store, 0),
    "k=212: choose from 1 to 211": lambda store, world: world.search(store, 212),
    "distance='backward': choose from forward, released": lambda store, world: world.search(store, 1, "backward"),
    "approximate_recall=1.5: choose a probability": lambda store, world: roughly(store, world, 1.5),
    "approximate_recall=0.0: choose a probability": lambda store, world: roughly(store, world, 0.0),
    "memory_mb=1: this search needs more than": lambda store, world: world.search(
        world.build("dense", memory_mb=1.0), 1
    ),
}


def roughly(store, world, recall):
    store.search(world.queries, search.SearchOptions(1, approximate_recall=recall))


@pytest.mark.parametrize("message", USER_ERRORS)
def test_user_errors(world, message):
    store = world.build("factored")
    with pytest.raises(errors.UserError, match=re.escape(message)):
        USER_ERRORS[message](store, world)


@pytest.mark.parametrize("built_for, others", [("hidden", ()), ("partial", ("partial_released",))])
def test_a_dense_store_keeps_what_its_distance_compares(world, built_for, others):
    store = world.build("dense", built_for)
    assert store.distances == (built_for, *others)
    worlds.check_ranks(world.search(store, 3, built_for).indices_Qk, world.distances(built_for))
    with pytest.raises(errors.UserError, match=f"distance='forward': choose from {built_for}"):
        world.search(store, 3)


def test_host_memory_is_for_a_single_process(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    store_lib.check_processes(stores.StoreOptions())
    with pytest.raises(errors.UserError, match="placement='host' is for a single process"):
        store_lib.check_processes(stores.StoreOptions(placement="host"))
