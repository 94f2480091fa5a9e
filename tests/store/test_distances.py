"""Distances by name; adding one is one object, by which dense stores then search."""

import jax.numpy as jnp
import numpy as np
import pytest

from knnprompt_jax import errors
from knnprompt_jax.store import distances
from tests.store import worlds

PAIRS = [("forward", "released"), ("partial", "partial_released"), ("partial_raw", "partial_raw_released")]


@pytest.mark.parametrize("forward, released", [*PAIRS, ("hidden", "hidden")])
def test_turning_keeps_what_is_compared(forward, released):
    for name in (forward, released):
        assert distances.turned(name, "forward") == forward and distances.turned(name, "released") == released


def test_an_unknown_name_is_told_with_the_choices():
    with pytest.raises(errors.UserError, match="distance='l2': choose from forward, released, partial, .*hidden"):
        distances.get("l2")


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
    with pytest.raises(errors.UserError, match="distance='total_variation' is no inner product.*choose kind='dense'"):
        world.build("factored", "total_variation")
    with pytest.raises(errors.UserError, match="distance='total_variation': choose from forward, released, partial"):
        world.search(old, 5, "total_variation")
