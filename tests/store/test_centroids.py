"""Centroids against their definitions, from either kind of store."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from knnprompt_jax import errors
from knnprompt_jax.settings import classifiers, stores
from knnprompt_jax.store import store as store_lib
from tests.store import worlds

CLASSES = (0, 1, 4)  # Classes 2 and 3 have no anchor.
KINDS = stores.CENTROIDS[1:]


@pytest.fixture(scope="module")
def sparse(world):
    """A world with as many anchors as a block has, and some more."""
    return dataclasses.replace(world, labels_N=np.random.default_rng(0).choice(CLASSES, 211, p=[0.2, 0.5, 0.3]))


def compared(logp_NV, distance):
    return special.log_softmax(logp_NV[:, worlds.LABEL_IDS], axis=-1) if distance.endswith("labels") else logp_NV


def members(world, distance):
    return [compared(world.logk_NV, distance)[world.labels_N == label] for label in CLASSES]


@pytest.mark.parametrize("distance", ["kl", "reverse_kl_labels"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("store_kind", ["dense", "factored"])
def test_centroids_are_those_of_the_definition(sparse, store_kind, kind, distance):
    if kind == "arithmetic":
        want_CV = np.stack([np.log(np.exp(rows_NV).mean(0)) for rows_NV in members(sparse, distance)])
    else:
        want_CV = special.log_softmax(np.stack([rows_NV.mean(0) for rows_NV in members(sparse, distance)]), axis=-1)
    got = store_lib.centroids(sparse.build(store_kind, distance), kind, sparse.head, distance)
    np.testing.assert_allclose(got.anchors.keys.values_NV, want_CV, atol=1e-4, rtol=0)
    np.testing.assert_allclose(jnp.exp(got.anchors.keys.values_NV).sum(-1), 1, atol=1e-5)
    np.testing.assert_array_equal(got.labels_N, CLASSES)
    direction = "reverse_kl" if distance.startswith("reverse") else "kl"
    want_QC = worlds.divergences(direction, compared(sparse.logp_QV, distance), want_CV)
    nearest = sparse.search(got, 1, distance)
    worlds.check_ranks(nearest.indices_Qk, want_QC)
    np.testing.assert_array_equal(nearest.labels_Qk, np.array(CLASSES)[nearest.indices_Qk])


def test_no_centroids_leave_the_anchors(world):
    store = world.build("factored", rows=slice(0, 7))
    assert store_lib.centroids(store, "none", world.head, "l2") is store


@pytest.mark.parametrize(
    "kind, distance, message",
    [
        ("median", "kl", "centroid='median': choose from none, arithmetic, geometric"),
        ("arithmetic", "l2", "needs a distance between distributions: choose distance=kl, reverse_kl, kl_l"),
    ],
)
def test_what_cannot_be_averaged_is_refused(kind, distance, message):
    with pytest.raises(errors.UserError, match=message):
        classifiers.KNNOptions(distance=distance, centroid=kind)
