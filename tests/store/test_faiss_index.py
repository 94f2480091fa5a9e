"""The FAISS index against the exact search of the same store."""

import numpy as np
import pytest

from knnprompt_jax import errors
from knnprompt_jax.store import faiss_index, stores

faiss = pytest.importorskip("faiss", reason="the extra faiss is not installed")
LABEL_IDS = (3, 5, 7, 11, 13)


def build(world, kind="factored", **options):
    return stores.build(kind, world.head, world.anchors, world.labels_N, LABEL_IDS, **options)


@pytest.mark.parametrize("direction", ["forward", "released"])
def test_reading_all_lists_is_exact(world, direction):
    store = build(world, released=True)
    found = faiss_index.Index.build(store, direction, lists=7, read=7).search(world.queries, 3)
    exact = store.search(world.queries, 3, direction)
    np.testing.assert_allclose(found.distances_Qk, exact.distances_Qk, atol=1e-4)
    gaps_Q = np.diff(np.sort(world.divergences(direction)), axis=-1)[:, :3].min(-1)
    certain_Q = gaps_Q > 2e-4
    assert certain_Q.mean() > 0.8
    np.testing.assert_array_equal(found.indices_Qk[certain_Q], np.asarray(exact.indices_Qk)[certain_Q])
    np.testing.assert_array_equal(found.labels_Qk, world.labels_N[found.indices_Qk])


@pytest.mark.parametrize("direction", ["forward", "released"])
def test_recall_grows_with_the_lists_read(world, direction):
    store = build(world, released=True)
    exact = store.search(world.queries, 5, direction)
    one, most = (
        faiss_index.recall(faiss_index.Index.build(store, direction, 13, read).search(world.queries, 5), exact)
        for read in (1, 11)
    )
    assert one < most
    assert most > 0.95


def test_lists_by_default(world):
    assert faiss_index.Index.build(build(world)).index.nlist == 211 // 39


def test_what_is_not_found_is_told(world):
    found = faiss_index.Index.build(build(world), lists=31, read=1).search(world.queries, 100)
    missing_Qk = np.asarray(found.indices_Qk) < 0
    assert missing_Qk.any()
    assert np.isinf(found.distances_Qk[missing_Qk]).all() and (found.labels_Qk[missing_Qk] == -1).all()


def test_mistakes_are_told(world, monkeypatch):
    with pytest.raises(errors.UserError, match="needs a factored store"):
        faiss_index.Index.build(build(world, "dense"))
    with pytest.raises(errors.UserError, match="made without it"):
        faiss_index.Index.build(build(world), "released")
    with pytest.raises(errors.UserError, match="lists=212, read=1: choose lists from 1 to 211"):
        faiss_index.Index.build(build(world), lists=212, read=1)
    monkeypatch.setattr(faiss_index, "faiss", None)
    with pytest.raises(errors.UserError, match="FAISS is not installed"):
        faiss_index.Index.build(build(world))
