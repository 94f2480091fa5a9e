"""The kernel against NumPy in float64, written from the definitions, whatever its tiles; ties by the rules, exactly.

Float32 cannot rank distances closer than its error: distributions are peaked, as trained models' are, and neighbours
are compared where the float64 distances differ by more than `worlds.MARGIN`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from knnprompt_jax.datastore import distances
from knnprompt_jax.datastore import search as search_lib
from tests.datastore import worlds

NUM_ANCHORS, VOCABULARY = 211, 101
NAMES = ("kl", "reverse_kl", "l2")
TILE = {"queries_per_tile": 7, "anchors_per_tile": 19}


def peaked(rows, seed):
    """Log-probabilities [rows, V] in float32, of which a few tokens have nearly everything."""
    logits_NV = 4 * np.random.default_rng(seed).normal(size=(rows, VOCABULARY))
    return special.log_softmax(logits_NV, axis=-1).astype(np.float32)


def definition(name, queries, keys):
    """Return all distances [Q, N] in float64."""
    q, k = queries.astype(np.float64), keys.astype(np.float64)
    return worlds.distances(name, q, k, q, k)


def search(queries, keys, name, k, labels=None, **options):
    labels = np.arange(len(keys)) if labels is None else labels
    distance = distances.get(name)
    queries = jax.vmap(distance.prepare_query)(jnp.asarray(queries))
    keys = jax.vmap(distance.prepare_anchor)(jnp.asarray(keys))
    sizes = {"queries_per_tile": search_lib.QUERIES_PER_TILE, "anchors_per_tile": len(labels), **options}
    options = search_lib.SearchOptions(k, distance.measure, **sizes)
    return search_lib.search(queries, keys, jnp.asarray(labels), options)


@pytest.mark.parametrize(
    "num_queries, k, tile",
    [(1, NUM_ANCHORS, {}), (2 * search_lib.QUERIES_PER_TILE + 11, 1, {}), (23, 3, TILE), (23, NUM_ANCHORS, TILE)],
)
@pytest.mark.parametrize("name", NAMES)
def test_neighbours_are_those_of_the_definition(name, num_queries, k, tile):
    queries, keys = peaked(num_queries, 0), peaked(NUM_ANCHORS, 1)
    labels = np.random.default_rng(2).integers(0, 5, NUM_ANCHORS)
    got, want_QN = search(queries, keys, name, k, labels, **tile), definition(name, queries, keys)
    np.testing.assert_allclose(got.distances_Qk, np.sort(want_QN)[:, :k], atol=worlds.MARGIN)
    worlds.check_ranks(got.indices_Qk, want_QN)
    np.testing.assert_array_equal(got.classes_Qk, labels[got.indices_Qk])


# Distances that are exact whatever the order of summation: distributions with all their mass on one token, whole
# numbers.
ONE_TOKEN = np.full((3, 7), -1e4, np.float32)
ONE_TOKEN[np.arange(3), [2, 5, 0]] = 0
EXACT = {
    "kl": (ONE_TOKEN[:1], np.array([[-3], [-1], [-2]], np.float32) * np.ones(7, np.float32)),
    "reverse_kl": (np.array([[-2, -9, -3, -9, -9, -1, -9]], np.float32), ONE_TOKEN),
    "l2": (np.zeros((1, 2), np.float32), np.array([[-3, 4], [1, 0], [0, 2]], np.float32)),
}


@pytest.mark.parametrize(
    "num_queries, num_anchors, k, tile",
    [(1, 37, 37, TILE), (search_lib.QUERIES_PER_TILE + 1, 37, 37, {}), (2, 1009, 5, {})],
)
@pytest.mark.parametrize("name", NAMES)
def test_equal_distances_take_the_lower_index(name, num_queries, num_anchors, k, tile):
    """Anchors of three kinds, of which 1 is nearest, then 2, then 0: those of a kind come out in order of index."""
    query, kinds = EXACT[name]
    kind_N = np.random.default_rng(3).integers(0, 3, num_anchors)
    got = search(np.repeat(query, num_queries, 0), kinds[kind_N], name, k, **tile)
    np.testing.assert_array_equal(definition(name, query, kinds)[0].argsort(), [1, 2, 0])
    expected = np.concatenate([np.flatnonzero(kind_N == kind) for kind in (1, 2, 0)])[:k]
    np.testing.assert_array_equal(got.indices_Qk, np.tile(expected, (num_queries, 1)))


@pytest.mark.parametrize("floor", [-1e4, -1e9])
@pytest.mark.parametrize("name", ["kl", "reverse_kl"])
def test_vanishing_probabilities_give_no_nan(name, floor):
    """Exp underflows to 0 and 0 · log 0 counts 0, as in the definition."""
    keys = np.where(np.eye(5, 11) > 0, 0, floor).astype(np.float32)
    got = search(keys, keys, name, 5)
    assert np.isfinite(got.distances_Qk).all()
    np.testing.assert_array_equal(got.indices_Qk[:, 0], np.arange(5))
    np.testing.assert_array_equal(got.distances_Qk[:, 0], 0)
    np.testing.assert_allclose(got.distances_Qk[:, 1:], -floor)


@pytest.mark.parametrize("labels, winner", [([2], 2), ([0, 3, 3], 3), ([2, 1, 0], 0), ([1, 3, 2, 2, 3], 2)])
def test_the_lowest_class_wins_a_tied_vote(labels, winner):
    classes_Qk = jax.numpy.array([labels, labels])
    near = search_lib.Neighbours(jax.numpy.ones(classes_Qk.shape), classes_Qk, classes_Qk)
    classes_Q, shares_QC = search_lib.vote(near, 5)
    assert classes_Q.tolist() == [winner] * 2
    np.testing.assert_array_equal(shares_QC[1], np.bincount(labels, minlength=5) / len(labels))


def test_padding_is_never_found():
    labels = np.where(np.arange(NUM_ANCHORS) % 3, 4, -1)
    real = np.flatnonzero(labels >= 0)
    found = search(peaked(7, 0), peaked(NUM_ANCHORS, 1), "l2", len(real), labels, **TILE)
    np.testing.assert_array_equal(np.sort(found.indices_Qk), np.tile(real, (7, 1)))
