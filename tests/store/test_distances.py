"""Distances by name; adding one is one object, by which dense stores then search."""

import types

import jax.numpy as jnp
import numpy as np
import pytest

from knnprompt_jax import errors
from knnprompt_jax.settings import stores
from knnprompt_jax.store import distances, placement, representations
from knnprompt_jax.store import store as store_lib
from tests.store import worlds


def test_a_new_distance_is_one_object(world, monkeypatch):
    """Dense stores search by it; factored ones, which have no inner product for it, refuse it."""
    total_variation = distances.Distance(
        *("total_variation", "total variation", "probability", "distribution"),
        measure=lambda logp_V, k_NV: abs(jnp.exp(logp_V) - k_NV).sum(-1) / 2,
        prepare=jnp.exp,
        copies=1,
    )
    old = world.build("factored")
    monkeypatch.setitem(distances.DISTANCES, "total_variation", total_variation)
    want_QN = abs(np.exp(world.logp_QV)[:, None] - np.exp(world.logk_NV)).sum(-1) / 2
    for kind, built_for in (("dense", "total_variation"), ("dense", ""), ("auto", "total_variation")):
        nearest = world.search(world.build(kind, built_for), 5, "total_variation")
        np.testing.assert_allclose(nearest.distances_Qk, np.sort(want_QN)[:, :5], atol=1e-5)
        worlds.check_ranks(nearest.indices_Qk, want_QN, margin=2e-5)
    with pytest.raises(errors.UserError, match="'total_variation' is not an inner product.*choose kind='dense'"):
        world.build("factored", "total_variation")
    with pytest.raises(errors.UserError, match="distance='total_variation': choose from kl, reverse_kl, kl_labels"):
        world.search(old, 5, "total_variation")


@pytest.mark.parametrize("name", [name for name, each in distances.DISTANCES.items() if each.terms])
@pytest.mark.parametrize("kind", ["dense", "factored"])
def test_terms_add_up_to_the_distance(world, kind, name):
    store, distance = world.build(kind, rows=slice(0, 23)), distances.get(name)
    logp_QW = representations.represent(world.head, world.queries, distance.representation, worlds.LABEL_IDS)
    logk_NW = store.codec.log_probabilities(store.anchors.keys, distance)
    want_QN = world.distances(name)[:, :23]
    for logp_W, want_N in zip(logp_QW[:5], want_QN[:5], strict=True):
        terms_NW, p_W, k_NW = distance.explain(logp_W, logk_NW)
        np.testing.assert_allclose(terms_NW.sum(-1), want_N, atol=1e-4)
        assert k_NW.shape == terms_NW.shape and p_W.shape == terms_NW.shape[1:]
        assert (abs(k_NW.sum(-1) - 1) < 1e-12).all()


@pytest.mark.parametrize("built_for", ["", *distances.DISTANCES])
@pytest.mark.parametrize("key_dtype", ["float32", "bfloat16"])
def test_the_size_of_an_anchor_is_known_before_there_is_one(world, key_dtype, built_for):
    store = world.build("auto", built_for, rows=slice(0, 7), key_dtype=key_dtype)
    options = stores.StoreOptions(key_dtype=key_dtype)
    config = types.SimpleNamespace(vocab_size=worlds.VOCABULARY, state_width=worlds.WIDTH)
    assert store_lib.anchor_bytes(options, built_for, config, 5) == placement.row_bytes(store.anchors.keys)
