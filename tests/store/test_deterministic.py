"""Distances of a deterministic store depend on no other query or anchor and on no placement, to the bit."""

import dataclasses

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

from knnprompt_jax.store import search

ANCHORS, QUERIES = 211, 53


@pytest.fixture(scope="module")
def steady(world):
    """The world with states of a deterministic model."""
    states = {name: getattr(world, name).replace(deterministic=True) for name in ("anchors", "queries")}
    return dataclasses.replace(world, **states)


def distances(store, queries, distance):
    """All distances [Q, N] as bits, in the order of the anchors' ids."""
    near = store.search(queries, search.SearchOptions(len(store), distance))
    distances_QN = np.empty(near.distances_Qk.shape, np.float32)
    np.put_along_axis(distances_QN, np.asarray(near.indices_Qk), np.asarray(near.distances_Qk), -1)
    return distances_QN[:, np.argsort(store.ids_N)].view(np.int32)


@pytest.fixture(scope="module", params=["factored", "dense"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def whole(steady, kind):
    return steady.build(kind)


@pytest.mark.parametrize("distance", ["reverse_kl", "kl_labels", "l2"])
def test_distances_are_right(steady, whole, kind, distance):
    if kind == "dense" and distance == "l2":
        pytest.skip("a dense store of distributions serves no distance of hidden states")
    bits = distances(whole, steady.queries, distance)
    np.testing.assert_allclose(bits.view(np.float32), steady.distances(distance), atol=2e-4)


@hypothesis.settings(max_examples=5, deadline=None)
@hypothesis.given(
    strategies.lists(strategies.integers(0, QUERIES - 1), min_size=1, max_size=260),
    strategies.sets(strategies.integers(1, ANCHORS - 1), max_size=ANCHORS - 2),
)
def test_no_other_query_or_anchor_counts(steady, whole, kind, asked, removed):
    bits = distances(whole, steady.queries, "kl")
    kept_n = np.setdiff1d(np.arange(ANCHORS), list(removed))
    got = distances(steady.build(kind, rows=kept_n), steady.queries[np.array(asked)], "kl")
    np.testing.assert_array_equal(got, bits[asked][:, kept_n])


def test_host_memory_and_its_bound_count_neither(steady, whole, kind):
    bits = distances(whole, steady.queries, "kl")
    streamed = steady.build(kind, placement="host", memory_mb=60.0)
    assert streamed.anchors.on_host
    np.testing.assert_array_equal(distances(streamed, steady.queries, "kl"), bits)
