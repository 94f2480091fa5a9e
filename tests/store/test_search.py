"""Searches in bounded memory: blocks, transfers and tiles change no result; errors."""

import dataclasses

import jax
import numpy as np
import pytest

from knnprompt_jax.settings import stores
from knnprompt_jax.store import distances, kernel, placement, search
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


def test_more_neighbours_than_a_transfer_has_anchors(world):
    distances_QN = world.all_distances(with_memory(world.build("dense"), 6), "kl")
    np.testing.assert_allclose(distances_QN, world.distances("kl"), atol=1e-4)


def test_streaming_holds_two_transfers_at_a_time(world, monkeypatch):
    """Each transfer starts before the search of the previous one, and after the search of the one before that."""
    events, put, kernel_search = [], jax.device_put, kernel.search
    monkeypatch.setattr(jax, "device_put", lambda tree: events.append("put") or put(tree))
    monkeypatch.setattr(kernel, "search", lambda *args, **kw: events.append("search") or kernel_search(*args, **kw))
    small = with_memory(world.build("factored", "kl"), 1.73)
    plan = small.plan(len(world.queries), search.SearchOptions(3))
    assert plan.anchors_per_transfer < len(small) / 3
    small.search(world.queries, search.SearchOptions(3))
    assert "".join(event[0] for event in events).startswith("ppspsps")


@pytest.mark.parametrize(
    "kind, distance, key_dtype",
    [
        *(("dense", "reverse_kl", "float32"), ("dense", "kl", "bfloat16")),
        *(("factored", "kl", "bfloat16"), ("factored", "l2", "float32")),
    ],
)
@pytest.mark.parametrize("num_queries, memory_mb", [(1, 16), (300, 16)])
def test_compiled_programs_take_the_planned_memory(world, kind, distance, key_dtype, num_queries, memory_mb):
    """The memory beside anchors, head and result, by XLA's analysis, exceeds neither the plan nor `memory_mb` by a tenth."""
    store, distance_of = world.build(kind, distance, rows=slice(0, 8), key_dtype=key_dtype), distances.get(distance)
    anchors = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((20_011, *leaf.shape[1:]), leaf.dtype), store.anchors)
    plan = search.make_plan(store.codec, anchors, num_queries, search.SearchOptions(3, distance), memory_mb * 2**20)
    states = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((plan.queries_per_block, *leaf.shape[1:]), leaf.dtype), world.queries
    )
    queries = jax.eval_shape(lambda states: store.codec.queries(states, distance_of), states)
    keys = jax.eval_shape(lambda keys: store.codec.references(keys, distance_of), anchors.keys)
    compiled = kernel.search_on.lower(queries, keys, anchors.labels_N, plan.kernel).compile()
    needed = compiled.memory_analysis().temp_size_in_bytes + plan.queries_per_block * placement.row_bytes(queries)
    assert needed <= 1.1 * plan.nbytes <= 1.1 * memory_mb * 2**20


def test_no_queries(world, store):
    nearest = store.search(world.queries[:0], search.SearchOptions(3))
    assert nearest.indices_Qk.shape == nearest.labels_Qk.shape == (0, 3)
