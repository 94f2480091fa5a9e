"""Searches in bounded memory: blocks and tiles change no result, and the plan's memory is an upper bound."""

import dataclasses

import jax
import numpy as np
import pytest

from knnprompt_jax.store import kernel, plan, rowwise
from tests.store import worlds


@pytest.mark.parametrize("distance", ["kl", "reverse_kl"])
@pytest.mark.parametrize("kind", ["dense", "factored"])
def test_little_memory_changes_no_result(world, kind, distance):
    store = world.build(kind, distance)
    small = dataclasses.replace(store, memory_mb=4.0)
    assert small.plan(len(world.queries), 5).num_bytes <= 4 * 2**20
    nearest = world.search(small, 5)
    np.testing.assert_allclose(nearest.distances_Qk, world.search(store, 5).distances_Qk, atol=1e-4)
    worlds.check_ranks(nearest.indices_Qk, world.distances(distance))


def test_more_neighbours_than_a_tile_has_anchors(world):
    small = dataclasses.replace(world.build("factored", "kl"), memory_mb=1.7)
    assert small.plan(len(world.queries), len(small)).kernel.anchors_per_tile < len(small) / 2
    np.testing.assert_allclose(world.all_distances(small), world.distances("kl"), atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "distance"), [("dense", "reverse_kl"), ("dense", "kl"), ("factored", "kl"), ("dense", "l2")]
)
@pytest.mark.parametrize(("num_queries", "memory_mb"), [(1, 16), (300, 16)])
def test_compiled_programs_take_the_planned_memory(world, kind, distance, num_queries, memory_mb):
    """XLA's memory besides anchors, head and result exceeds neither the plan nor `memory_mb` by more than 10 %."""
    store = world.build(kind, distance, rows=slice(0, 8))

    def abstract(tree, count):
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape[1:]), leaf.dtype), tree)

    keys = abstract(store.keys, 20_011)
    sizes = plan.make(store.codec, keys, num_queries, 3, memory_mb * 2**20)
    queries = jax.eval_shape(store.codec.queries, abstract(world.queries, sizes.queries_per_block))
    assert rowwise.row_bytes(queries) == rowwise.row_bytes(keys), "the plan takes queries to be as large as keys"
    classes_M = abstract(store.classes_M, 20_011)
    compiled = kernel.search_on.lower(queries, keys, classes_M, sizes.kernel).compile()
    required = compiled.memory_analysis().temp_size_in_bytes + sizes.queries_per_block * rowwise.row_bytes(queries)
    assert required <= 1.1 * sizes.num_bytes <= 1.1 * memory_mb * 2**20
