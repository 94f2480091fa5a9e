"""Class means against their definitions."""

import dataclasses

import numpy as np
import pytest
from scipy import special

from tests.datastore import worlds

CLASSES = (0, 1, 4)  # Classes 2 and 3 have no anchor.


@pytest.fixture(scope="module")
def sparse(world):
    """A world with as many anchors as a block has, and some more."""
    return dataclasses.replace(world, classes_N=np.random.default_rng(0).choice(CLASSES, 211, p=[0.2, 0.5, 0.3]))


def compared(logp_NV, distance):
    return special.log_softmax(logp_NV[:, worlds.LABEL_TOKENS], axis=-1) if distance.endswith("labels") else logp_NV


def definition(world, kind, distance):
    """Return the logarithms [C, W] of the class means in float64."""
    logk_NW = compared(world.logk_NV, distance)
    members = [logk_NW[world.classes_N == label] for label in CLASSES]
    if kind == "arithmetic":
        return np.stack([special.logsumexp(logk_nW, axis=0) - np.log(len(logk_nW)) for logk_nW in members])
    return special.log_softmax(np.stack([logk_nW.mean(0) for logk_nW in members]), axis=-1)


@pytest.mark.parametrize("distance", ["kl", "reverse_kl_labels"])
@pytest.mark.parametrize("kind", ("arithmetic", "geometric"))
def test_class_means_are_those_of_the_definition(sparse, kind, distance):
    want_CW = definition(sparse, kind, distance)
    store = sparse.build("auto", distance, centroid=kind)
    keys_CW = np.asarray(store.keys.vector)  # Probabilities if the anchor weights the terms, otherwise logarithms.
    np.testing.assert_allclose(np.log(keys_CW) if distance.startswith("reverse") else keys_CW, want_CW, atol=1e-4)
    np.testing.assert_array_equal(store.classes_N, CLASSES)
    direction = "reverse_kl" if distance.startswith("reverse") else "kl"
    want_QC = worlds.divergences(direction, compared(sparse.logp_QV, distance), want_CW)
    nearest = sparse.search(store, 1)
    worlds.check_ranks(nearest.indices_Qk, want_QC)
    np.testing.assert_array_equal(nearest.classes_Qk, np.array(CLASSES)[nearest.indices_Qk])
