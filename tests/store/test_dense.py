"""The dense store: its bounds, its labels, and centroids as their definitions have them."""

import jax.numpy as jnp
import numpy as np
import pytest

from knnprompt_jax import errors
from knnprompt_jax.store import dense

NUM_ANCHORS, VOCABULARY = 23, 101
LABELS_N = np.random.default_rng(0).choice([0, 1, 4], NUM_ANCHORS, p=[0.2, 0.5, 0.3])


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def make():
    """A store of peaked distributions; classes 2 and 3 have no anchor."""
    logits_NV = 3 * np.random.default_rng(1).normal(size=(NUM_ANCHORS, VOCABULARY))
    return dense.Datastore(jnp.asarray(log_softmax(logits_NV), jnp.float32), jnp.asarray(LABELS_N, jnp.int32))


def test_size():
    store = make()
    assert len(store) == NUM_ANCHORS
    assert store.nbytes == 4 * NUM_ANCHORS * VOCABULARY + 4 * NUM_ANCHORS


@pytest.mark.parametrize("distance", ["forward", "released"])
def test_every_anchor_finds_itself(distance):
    store = make()
    found = store.search(store.keys_NV, 2, distance)
    np.testing.assert_array_equal(found.indices_Qk[:, 0], np.arange(NUM_ANCHORS))
    np.testing.assert_array_equal(found.labels_Qk, LABELS_N[found.indices_Qk])
    np.testing.assert_allclose(found.distances_Qk[:, 0], 0, atol=1e-5)


@pytest.mark.parametrize("k", [-1, 0, NUM_ANCHORS + 1])
def test_k_out_of_range_is_refused(k):
    store = make()
    with pytest.raises(errors.UserError, match=rf"k={k}: choose from 1 to {NUM_ANCHORS}"):
        store.search(store.keys_NV, k, "forward")


@pytest.mark.parametrize("kind", ["arithmetic", "geometric"])
def test_centroids(kind):
    centroids = make().centroids(kind)
    keys_NV = np.asarray(make().keys_NV, np.float64)
    members = [keys_NV[label == LABELS_N] for label in (0, 1, 4)]
    if kind == "arithmetic":
        want_CV = np.stack([np.log(np.exp(rows).mean(0)) for rows in members])
    else:
        want_CV = log_softmax(np.stack([rows.mean(0) for rows in members]))
    np.testing.assert_allclose(centroids.keys_NV, want_CV, atol=1e-5)
    np.testing.assert_array_equal(centroids.labels_N, [0, 1, 4])
    np.testing.assert_allclose(jnp.exp(centroids.keys_NV).sum(-1), 1, atol=1e-6)


@pytest.mark.parametrize("kind", ["arithmetic", "geometric"])
def test_centroids_minimise_the_divergence_they_claim(kind):
    """No distribution near a centroid has less total KL: from the anchors (arithmetic), or to them (geometric)."""
    rows_NV = np.asarray(make().keys_NV, np.float64)[LABELS_N == 1]
    centroid_V = np.asarray(make().centroids(kind).keys_NV[1], np.float64)

    def total(logc_V):
        logp, logq = (rows_NV, logc_V) if kind == "arithmetic" else (logc_V, rows_NV)
        return (np.exp(logp) * (logp - logq)).sum()

    rng = np.random.default_rng(2)
    nearby = [log_softmax(centroid_V + 0.1 * rng.normal(size=VOCABULARY)) for _ in range(31)]
    assert min(map(total, nearby)) > total(centroid_V)


@pytest.mark.parametrize("kind", ["median"])
def test_unknown_centroids_are_refused(kind):
    with pytest.raises(errors.UserError, match=f"centroid='{kind}': choose from none, arithmetic, geometric"):
        make().centroids(kind)
