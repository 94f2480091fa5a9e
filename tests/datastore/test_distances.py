"""Representations and distances against NumPy in float64; a new distance is one object."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from knnprompt_jax.common import errors
from knnprompt_jax.datastore import distances, rowwise
from knnprompt_jax.inference import lm
from knnprompt_jax.models import head as head_lib
from tests.datastore import worlds


def test_a_new_distance_is_one_object(world, monkeypatch):
    """Dense stores search by it; factored ones, which have no inner product for it, refuse it."""
    total_variation = distances.Distance(
        name="total_variation",
        title="total variation",
        unit="probability",
        representation=distances.Representation.DISTRIBUTION,
        measure=lambda p_V, k_NV: abs(p_V - k_NV).sum(-1) / 2,
        prepare_query=jnp.exp,
        prepare_anchor=jnp.exp,
    )
    monkeypatch.setitem(distances.DISTANCES, "total_variation", total_variation)
    want_QN = abs(np.exp(world.logp_QV)[:, None] - np.exp(world.logk_NV)).sum(-1) / 2
    for kind in ("dense", "auto"):
        nearest = world.search(world.build(kind, "total_variation"), 5)
        np.testing.assert_allclose(nearest.distances_Qk, np.sort(want_QN)[:, :5], atol=1e-5)
        worlds.check_ranks(nearest.indices_Qk, want_QN, margin=2e-5)
    with pytest.raises(errors.UserError, match="'total_variation' is not an inner product.*choose kind='dense'"):
        world.build("factored", "total_variation")


@pytest.mark.parametrize("name", [name for name, each in distances.DISTANCES.items() if each.terms])
def test_terms_add_up_to_the_distance(world, name):
    distance = distances.get(name)
    logp_QW, logk_NW = (
        distances.represent(world.head, states.take_replicated(slice(23)), distance.representation, worlds.LABEL_TOKENS)
        for states in (world.queries, world.anchors)
    )
    want_QN = world.distances(name)[:, :23]
    for logp_W, want_N in zip(logp_QW[:5], want_QN[:5], strict=True):
        terms_NW, p_W, k_NW = distance.explain(logp_W, logk_NW)
        np.testing.assert_allclose(terms_NW.sum(-1), want_N, atol=1e-4)
        assert k_NW.shape == terms_NW.shape and p_W.shape == terms_NW.shape[1:]
        np.testing.assert_allclose(k_NW.sum(-1), 1, atol=1e-12)


@pytest.mark.parametrize("name", distances.DISTANCES)
def test_the_other_direction_compares_the_same(name):
    """Turning twice gives the first distance; a distance without a direction stays."""
    turned = {direction: distances.with_direction(name, direction) for direction in ("kl", "reverse_kl")}
    distance = distances.get(name)
    assert turned.get(distance.direction, name) == name
    assert {distances.get(each).representation for each in turned.values()} == {distance.representation}
    assert len(set(turned.values())) == (2 if distance.direction else 1)


LABEL_TOKENS = (5, 11, 97)


def make(shift=0.0, dtype=jnp.float32, error=0.0):
    """A head, states and their log-probabilities in float64; log Z of the states has an error."""
    rng, rows = np.random.default_rng(0), rowwise.ROWS_PER_TILE + 3
    head_VE = jnp.asarray(rng.normal(size=(503, 13)), dtype).at[:, 0].set(1)
    hidden_NE = rng.normal(size=(rows, 13)).astype(np.float32)
    hidden_NE[:, 0] = shift  # Moves all logits, as trained heads do.
    logits_NV = hidden_NE.astype(np.float64) @ np.asarray(head_VE, np.float64).T
    logp_NV = special.log_softmax(logits_NV, axis=-1)
    log_z_N = (logits_NV - logp_NV)[:, 0].astype(np.float32) + error
    return head_lib.Head(head_VE), lm.States(jnp.asarray(hidden_NE), jnp.asarray(log_z_N)), logp_NV


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("shift", [0.0, -90.0])
@pytest.mark.parametrize("error", [0.0, 0.01])
def test_distributions_are_those_of_float64(shift, dtype, error):
    """Distributions equal those of float64 from the stored head, even with an error in log Z.

    All computation is in float32.
    """
    head, states, logp_NV = make(shift, dtype, error)
    got_NV = distances.log_probabilities(head, states)
    assert got_NV.dtype == jnp.float32
    np.testing.assert_allclose(got_NV, logp_NV, atol=5e-5)
    np.testing.assert_allclose(np.exp(np.asarray(got_NV, np.float64)).sum(-1), 1, atol=2e-6)
    labels_NC = distances.label_log_probabilities(head, states, LABEL_TOKENS)
    np.testing.assert_allclose(labels_NC, logp_NV[:, LABEL_TOKENS] - error, atol=5e-5)
