"""Searches in bounded memory: blocks, transfers and tiles change no result; errors."""

import dataclasses

import jax
import numpy as np
import pytest

from knnprompt_jax.settings import stores
from knnprompt_jax.store import kernel, search
from tests.store import worlds


@pytest.fixture(scope="module", params=["dense", "factored"])
def store(request, world):
    return world.build(request.param)


def with_memory(store, memory_mb, on_host=True):
    return dataclasses.replace(worlds.placed(store, on_host=on_host), memory_mb=memory_mb)


@pytest.mark.parametrize("direction", stores.DIRECTIONS)
@pytest.mark.parametrize("on_host", [False, True])
def test_little_memory_changes_no_result(world, store, on_host, direction):
    small = with_memory(store, 4.0, on_host)
    plan = small.plan(len(world.queries), search.SearchOptions(5, direction))
    assert plan.nbytes <= 4 * 2**20
    nearest, whole = (world.search(each, 5, direction) for each in (small, store))
    np.testing.assert_allclose(nearest.distances_Qk, whole.distances_Qk, atol=1e-4)
    worlds.check_ranks(nearest.indices_Qk, world.distances(direction))


@pytest.mark.parametrize("k", [1, 211])
def test_more_neighbours_than_a_transfer_has_anchors(world, k):
    store = world.build("dense")
    nearest = world.search(with_memory(store, 6), k)
    assert nearest.indices_Qk.shape == (len(world.queries), k)
    np.testing.assert_allclose(nearest.distances_Qk, world.search(store, k).distances_Qk, atol=1e-4)


def test_streaming_holds_two_transfers_at_a_time(world, monkeypatch):
    """Each transfer starts before the search of the previous one, and after the search of the one before that."""
    events, put, kernel_search = [], jax.device_put, kernel.search
    monkeypatch.setattr(jax, "device_put", lambda tree: events.append("put") or put(tree))
    monkeypatch.setattr(kernel, "search", lambda *args, **kw: events.append("search") or kernel_search(*args, **kw))
    small = with_memory(world.build("factored", "forward"), 1.73)
    plan = small.plan(len(world.queries), search.SearchOptions(3))
    assert plan.anchors_per_transfer < len(small) / 3
    small.search(world.queries, search.SearchOptions(3))
    assert "".join(event[0] for event in events).startswith("ppspsps")


def test_no_queries(world, store):
    nearest = store.search(world.queries[:0], search.SearchOptions(3))
    assert nearest.indices_Qk.shape == nearest.labels_Qk.shape == (0, 3)
