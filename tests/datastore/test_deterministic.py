"""Distances of a deterministic store depend on no other query or anchor and on no bound of the memory, to the bit."""

import dataclasses

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

ANCHORS, QUERIES = 211, 53


@pytest.fixture(scope="module")
def steady(world):
    """The world with states of a deterministic model."""
    states = {name: getattr(world, name).replace(deterministic=True) for name in ("anchors", "queries")}
    return dataclasses.replace(world, **states)


def all_bits(store, queries):
    """Return all distances [Q, N] as bits, in the order of the anchors' ids."""
    near = store.search(queries, len(store))
    distances_QN = np.empty(near.distances_Qk.shape, np.float32)
    np.put_along_axis(distances_QN, np.asarray(near.indices_Qk), np.asarray(near.distances_Qk), -1)
    return distances_QN[:, np.argsort(store.ids_N)].view(np.int32)


@pytest.fixture(scope="module", params=["factored", "dense"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def bits_QN(steady, kind):
    return all_bits(steady.build(kind, "kl"), steady.queries)


@pytest.mark.parametrize("distance", ["reverse_kl", "kl_labels", "l2"])
def test_distances_are_right(steady, kind, distance):
    bits_QN = all_bits(steady.build(kind, distance), steady.queries)
    np.testing.assert_allclose(bits_QN.view(np.float32), steady.distances(distance), atol=2e-4)


@hypothesis.settings(max_examples=5, deadline=None)
@hypothesis.given(
    strategies.lists(strategies.integers(0, QUERIES - 1), min_size=1, max_size=260),
    strategies.sets(strategies.integers(1, ANCHORS - 1), max_size=ANCHORS - 2),
)
def test_no_other_query_or_anchor_counts(steady, kind, bits_QN, asked, removed):
    kept_n = np.setdiff1d(np.arange(ANCHORS), list(removed))
    got = all_bits(steady.build(kind, "kl", rows=kept_n), steady.queries.take_replicated(np.array(asked)))
    np.testing.assert_array_equal(got, bits_QN[asked][:, kept_n])


def test_the_bound_of_the_memory_does_not_count(steady, kind, bits_QN):
    got = all_bits(steady.build(kind, "kl", memory_mb=60.0), steady.queries)
    np.testing.assert_array_equal(got, bits_QN)
