"""The factored store against float64: divergences and neighbours."""

import numpy as np
import pytest

from knnprompt_jax.datastore import StoreOptions, distances
from knnprompt_jax.datastore import search as search_lib
from knnprompt_jax.datastore import store as store_lib
from tests.datastore import worlds

DIRECTIONS = pytest.mark.parametrize("direction", distances.DIRECTIONS)


@DIRECTIONS
def test_distances_are_the_divergences(world, direction):
    store = world.build("factored", direction)
    want_QN = world.distances(direction)
    np.testing.assert_allclose(world.all_distances(store), want_QN, atol=1e-4, rtol=0)
    worlds.check_ranks(world.search(store, 3).indices_Qk, want_QN, least=0.9)


@DIRECTIONS
def test_the_kind_changes_no_prediction(decoded, direction):
    """For states of a real pass, where float64 tells the k-th anchor from the next by more than float32 mistakes."""
    sorted_QN = np.sort(worlds.divergences(direction, decoded.logp_QV, decoded.logp_NV))
    dense, factored = (
        store_lib.build(StoreOptions(kind), direction, decoded.head, decoded.anchors, decoded.y_N, decoded.label_tokens)
        for kind in ("dense", "factored")
    )
    for k in (1, 3):
        certain_Q = sorted_QN[:, k] - sorted_QN[:, k - 1] > worlds.MARGIN
        assert certain_Q.mean() > 0.5
        expected_Q, _ = search_lib.vote(dense.search(decoded.queries, k), 4)
        predicted_Q, _ = search_lib.vote(factored.search(decoded.queries, k), 4)
        assert len(set(expected_Q[certain_Q].tolist())) > 1
        np.testing.assert_array_equal(predicted_Q[certain_Q], expected_Q[certain_Q])
