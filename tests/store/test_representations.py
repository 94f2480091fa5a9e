"""Keys of anchors and queries against NumPy in float64, from states and head."""

import jax.numpy as jnp
import numpy as np
import pytest

from knnprompt_jax import lm
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.store import placement, representations
from tests.store import worlds

VOCABULARY, WIDTH, LABEL_IDS = 503, 13, [7, 499, 0]


def make(rows, shift=0.0, dtype=jnp.float32):
    """Head, states and the float64 log-probabilities they stand for; `shift` moves all logits, as trained heads do."""
    rng = np.random.default_rng(rows)
    head_VE = jnp.asarray(rng.normal(size=(VOCABULARY, WIDTH)), dtype)
    hidden_NE = rng.normal(size=(rows, WIDTH)).astype(np.float32)
    hidden_NE[:, 0], head_VE = shift, head_VE.at[:, 0].set(1)
    logits_NV = hidden_NE.astype(np.float64) @ np.asarray(head_VE, np.float64).T
    logp_NV = worlds.log_softmax(logits_NV)
    log_z_N = (logits_NV - logp_NV)[:, 0].astype(np.float32)
    return head_lib.Head(head_VE), lm.States(jnp.asarray(hidden_NE), jnp.asarray(log_z_N)), logp_NV


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("shift", [0.0, -90.0])
@pytest.mark.parametrize("rows", [1, placement.ROWS_PER_TILE + 3])
def test_distribution(rows, shift, dtype):
    """The head's values are taken as they are stored; everything computed from them is float32."""
    head, states, logp_NV = make(rows, shift, dtype)
    got_NV = representations.represent(head, states, "distribution", LABEL_IDS)
    assert got_NV.dtype == jnp.float32 and got_NV.shape == logp_NV.shape
    np.testing.assert_allclose(got_NV, logp_NV, atol=5e-5)
    np.testing.assert_allclose(np.exp(np.asarray(got_NV, np.float64)).sum(-1), 1, atol=2e-6)


def test_distribution_does_not_inherit_the_error_of_log_z():
    head, states, logp_NV = make(11)
    rough = lm.States(states.hidden_NE, states.log_z_N + 0.01)
    np.testing.assert_allclose(representations.log_probabilities(head, rough), logp_NV, atol=5e-5)


@pytest.mark.parametrize("rows", [1, 71])
def test_partial(rows):
    head, states, logp_NV = make(rows)
    raw_NC = representations.represent(head, states, "partial_raw", LABEL_IDS)
    np.testing.assert_allclose(raw_NC, logp_NV[:, LABEL_IDS], atol=5e-5)
    partial_NC = representations.represent(head, states, "partial", LABEL_IDS)
    np.testing.assert_allclose(partial_NC, worlds.log_softmax(logp_NV[:, LABEL_IDS]), atol=5e-5)


def test_hidden_is_the_state_itself():
    head, states, _ = make(17)
    np.testing.assert_array_equal(representations.represent(head, states, "hidden", LABEL_IDS), states.hidden_NE)
