"""What every kind of store does: search in bounded memory, append, remove, stream; and the mistakes it tells."""

import dataclasses
import re

import jax
import numpy as np
import pytest

from knnprompt_jax import errors
from knnprompt_jax.store import kernel, searching, stores

LABEL_IDS = (3, 4998, 7, 11, 13)
KINDS = {"dense": {}, "factored": {"released": True}}


@pytest.fixture(scope="module", params=KINDS)
def store(request, world):
    return build(world, request.param)


def build(world, kind, rows=slice(None), **options):
    anchors, labels_N = world.anchors[rows], world.labels_N[rows]
    return stores.build(kind, world.head, anchors, labels_N, LABEL_IDS, **KINDS.get(kind, {}), **options)


def check_same(found, wanted, world, direction):
    """The same neighbours wherever float64 tells them apart, at the same distances."""
    np.testing.assert_allclose(found.distances_Qk, wanted.distances_Qk, atol=1e-4)
    sorted_QN = np.sort(world.divergences(direction))
    gaps_QN = np.diff(sorted_QN, prepend=-1, append=1e9)
    k = found.indices_Qk.shape[1]
    certain_Qk = np.minimum(gaps_QN[:, :-1], gaps_QN[:, 1:])[:, :k] > 2e-4
    assert certain_Qk.mean() > 0.8
    np.testing.assert_array_equal(np.asarray(found.indices_Qk)[certain_Qk], np.asarray(wanted.indices_Qk)[certain_Qk])


@pytest.mark.parametrize("direction", ["forward", "released"])
@pytest.mark.parametrize("on_host", [False, True])
@pytest.mark.parametrize("memory_mb", [3.9, 4.3, 8])
def test_little_memory_shows_in_no_result(world, store, memory_mb, on_host, direction):
    small = dataclasses.replace(store.on_host() if on_host else store, memory_mb=memory_mb)
    plan = small.plan(len(world.queries), searching.Question(5, direction))
    assert plan.nbytes <= memory_mb * 2**20
    check_same(small.search(world.queries, 5, direction), store.search(world.queries, 5, direction), world, direction)


def test_little_memory_means_blocks_and_transfers(world, store):
    small = dataclasses.replace(build(world, "dense").on_host(), memory_mb=3.9)
    plan = small.plan(len(world.queries), searching.Question(5))
    assert plan.queries < len(world.queries) and plan.transfer < len(small)


@pytest.mark.parametrize("k", [1, 100, 211])
def test_more_neighbours_than_a_transfer_has_anchors(world, k):
    store = build(world, "dense")
    small = dataclasses.replace(store.on_host(), memory_mb=3.9)
    found = small.search(world.queries, k)
    assert found.indices_Qk.shape == (len(world.queries), k)
    np.testing.assert_allclose(found.distances_Qk, store.search(world.queries, k).distances_Qk, atol=1e-4)


def test_streaming_holds_two_transfers_at_a_time(world, monkeypatch):
    """Every transfer is asked for before the one before it is searched, and none before the last but one is done."""
    events, put, search = [], jax.device_put, kernel.search
    monkeypatch.setattr(jax, "device_put", lambda tree: events.append("put") or put(tree))
    monkeypatch.setattr(kernel, "search", lambda *args, **options: events.append("search") or search(*args, **options))
    small = dataclasses.replace(build(world, "factored").on_host(), memory_mb=3.73)
    plan = small.plan(len(world.queries), searching.Question(3))
    assert plan.transfer < len(small) / 3
    small.search(world.queries[: plan.queries], 3)
    assert "".join(event[0] for event in events).startswith("ppspsps")


def test_a_state_serves_every_number_of_neighbours(world, store):
    three, five = (store.search(world.queries, k) for k in (3, 5))
    jax.tree.map(lambda fewer, more: np.testing.assert_array_equal(fewer, more[:, :3]), three, five)


def test_no_queries(world, store):
    found = store.search(world.queries[:0], 3)
    assert found.indices_Qk.shape == found.labels_Qk.shape == (0, 3)


@pytest.mark.parametrize("on_host", [False, True])
def test_appending_is_building_from_all_at_once(world, store, on_host):
    kind = store.codec.kind
    part = build(world, kind, slice(0, 150))
    grown = (part.on_host() if on_host else part).append(world.anchors[150:], world.labels_N[150:])
    assert len(part) == 150 and len(grown) == 211
    np.testing.assert_array_equal(grown.ids_N, np.arange(211))
    np.testing.assert_array_equal(grown.labels_N, world.labels_N)
    jax.tree.map(
        lambda old, new: np.testing.assert_array_equal(old, np.asarray(new)[:150]), part.anchors, grown.anchors
    )
    check_same(grown.search(world.queries, 5), store.search(world.queries, 5), world, "forward")
    assert isinstance(grown.anchors.labels_N, np.ndarray) == on_host


@pytest.mark.parametrize("on_host", [False, True])
def test_removing_by_id(world, store, on_host):
    store = dataclasses.replace(store, ids_N=1000 + 3 * np.arange(211))
    removed = [1000, 1000 + 3 * 210, 1000 + 3 * 7]
    left = (store.on_host() if on_host else store).remove(removed)
    kept_n = np.setdiff1d(np.arange(211), [0, 210, 7])
    np.testing.assert_array_equal(left.ids_N, store.ids_N[kept_n])
    np.testing.assert_array_equal(left.labels_N, world.labels_N[kept_n])
    found, wanted_QN = left.search(world.queries, 1), world.divergences("forward")[:, kept_n]
    np.testing.assert_array_equal(found.indices_Qk[:, 0], wanted_QN.argmin(-1))
    again = left.append(world.anchors[np.array([7])], [4])
    assert again.ids_N[-1] == left.ids_N.max() + 1


MISTAKES = {
    "k=0: choose from 1 to 211": lambda store, world: store.search(world.queries, 0),
    "k=212: choose from 1 to 211": lambda store, world: store.search(world.queries, 212),
    "direction='backward': choose from forward, released": lambda store, world: store.search(
        world.queries, 1, "backward"
    ),
    "representation='bag': choose from distribution, partial": lambda store, world: store.search(
        world.queries, 1, representation="bag"
    ),
    "id 3 occurs more than once": lambda store, world: store.append(world.anchors[:1], [0], [3]),
    "2 labels for 3 anchors": lambda store, world: store.append(world.anchors[:3], [0, 1]),
    "2 ids for 3 anchors": lambda store, world: build(world, "dense", slice(0, 3), ids=[1, 2]),
    "label -1: classes are numbers from 0": lambda store, world: store.append(world.anchors[:2], [0, -1]),
    "id 211 is not in the store": lambda store, world: store.remove([2, 211]),
    "no anchor would be left": lambda store, world: store.remove(range(211)),
    "kind='sparse': choose from dense, factored": lambda store, world: build(world, "sparse"),
    "key_dtype='int8': choose from float32, float16, bfloat16": lambda store, world: build(
        world, "dense", key_dtype="int8"
    ),
    "needs at least one anchor": lambda store, world: build(world, "dense", slice(0, 0)),
    "search memory of 1 MB: more than": lambda store, world: dataclasses.replace(store, memory_mb=1).search(
        world.queries, 1
    ),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_told(world, store, message):
    with pytest.raises(errors.UserError, match=re.escape(message)):
        MISTAKES[message](store, world)


def test_a_dense_store_of_hidden_states(world):
    store = build(world, "dense", representation="hidden")
    found = store.search(world.queries, 3, representation="hidden")
    queries_QE, anchors_NE = (np.asarray(part.hidden_NE, np.float64) for part in (world.queries, world.anchors))
    distances_QN = np.linalg.norm(queries_QE[:, None] - anchors_NE, axis=-1)
    np.testing.assert_array_equal(found.indices_Qk, distances_QN.argsort(-1)[:, :3])
    with pytest.raises(errors.UserError, match="representation='distribution': choose from hidden"):
        store.search(world.queries, 3)
