"""Distributions and label words against NumPy in float64, from states."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from knnprompt_jax.datastore import distances, rowwise
from knnprompt_jax.inference import lm
from knnprompt_jax.models import head as head_lib

VOCABULARY, WIDTH, LABEL_TOKENS = 503, 13, (5, 11, 97)


def make(shift=0.0, dtype=jnp.float32, error=0.0):
    """A head, states and their log-probabilities in float64; log Z of the states has an error."""
    rng, rows = np.random.default_rng(0), rowwise.ROWS_PER_TILE + 3
    head_VE = jnp.asarray(rng.normal(size=(VOCABULARY, WIDTH)), dtype).at[:, 0].set(1)
    hidden_NE = rng.normal(size=(rows, WIDTH)).astype(np.float32)
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
