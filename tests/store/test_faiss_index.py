"""The FAISS index against the exact search of the same store."""

import numpy as np
import pytest

from knnprompt_jax import errors
from knnprompt_jax.store import distances, faiss_index
from tests.store import worlds

faiss = pytest.importorskip("faiss", reason="the extra faiss is not installed")
DIRECTIONS = pytest.mark.parametrize("direction", distances.DIRECTIONS)


@DIRECTIONS
def test_reading_all_lists_is_exact(world, direction):
    store = world.build("factored")
    nearest = faiss_index.Index.build(store, direction, lists=7, read=7).search(world.queries, 3)
    np.testing.assert_allclose(nearest.distances_Qk, world.search(store, 3, direction).distances_Qk, atol=1e-4)
    worlds.check_ranks(nearest.indices_Qk, world.distances(direction))
    np.testing.assert_array_equal(nearest.labels_Qk, world.labels_N[nearest.indices_Qk])


@DIRECTIONS
def test_recall_grows_with_the_lists_read(world, direction):
    store = world.build("factored")
    exact = world.search(store, 5, direction)
    fewest, most = (
        faiss_index.recall(faiss_index.Index.build(store, direction, 13, read).search(world.queries, 5), exact)
        for read in (1, 11)
    )
    assert fewest < most
    assert most > 0.95


def test_lists_by_default(world):
    assert faiss_index.Index.build(world.build("factored")).index.nlist == 211 // 39


def test_neighbours_that_are_missing_are_told(world):
    nearest = faiss_index.Index.build(world.build("factored"), lists=31, read=1).search(world.queries, 100)
    missing_Qk = np.asarray(nearest.indices_Qk) < 0
    assert missing_Qk.any()
    assert np.isinf(nearest.distances_Qk[missing_Qk]).all() and (nearest.labels_Qk[missing_Qk] == -1).all()


@pytest.mark.parametrize(
    "kind, distance", [("dense", "forward"), ("factored", "released"), ("factored", "hidden"), ("factored", "partial")]
)
def test_what_has_no_inner_products_is_refused(world, kind, distance):
    store = world.build(kind, "forward")
    with pytest.raises(errors.UserError, match=f"distance='{distance}': this {kind} store has no inner products"):
        faiss_index.Index.build(store, distance)


def test_mistakes_are_told(world, monkeypatch):
    with pytest.raises(errors.UserError, match="lists=212, read=1: choose lists from 1 to 211"):
        faiss_index.Index.build(world.build("factored"), lists=212, read=1)
    monkeypatch.setattr(faiss_index, "faiss", None)
    with pytest.raises(errors.UserError, match="FAISS is not installed"):
        faiss_index.Index.build(world.build("factored"))
