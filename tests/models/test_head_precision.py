"""An accelerator multiplies states by a bfloat16 head in two products: distances between real prompts stay the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from knnprompt_jax import lm
from knnprompt_jax import states as states_lib
from knnprompt_jax.models import head
from knnprompt_jax.prompts import layout
from knnprompt_jax.tasks import catalogue, sources


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_products_are_those_of_float32(dtype):
    rng = np.random.default_rng(0)
    h_NE, rows_VE = rng.normal(size=(7, 131)).astype(np.float32), jnp.asarray(rng.normal(size=(211, 131)), dtype)
    want_NV = h_NE.astype(np.float64) @ np.asarray(rows_VE, np.float64).T
    np.testing.assert_allclose(head._products(h_NE, rows_VE, "tpu"), want_NV, atol=2e-4)


@pytest.mark.long
def test_divergences_of_real_prompts_change_by_less_than_a_thousandth():
    """SmolLM2 on rows of the shipped task. A single product in bfloat16 changes them more."""
    model, task = lm.LanguageModel.from_pretrained("smollm2"), catalogue.get("demo")
    rows = sources.load_rows(task, "dev_subsample")[::9]
    states = states_lib.read(model, layout.lay_out(task, [], rows, model.tokenize, model.context))
    rows_VE = model.head.rows_VE.astype(jnp.bfloat16)
    hidden_NE = jnp.asarray(states.hidden_NE)
    exact, ours = (_divergences(head._products(hidden_NE, rows_VE, platform)) for platform in ("cpu", "tpu"))
    once = _divergences(head._products(jax.lax.reduce_precision(hidden_NE, 8, 7), rows_VE, "cpu"))
    assert np.median(exact) > 0.1 and abs(ours - exact).max() < 1e-3 < abs(once - exact).max()


def _divergences(logits_NV):
    """Return KL between all pairs, in nats."""
    logp_NV = np.asarray(jax.nn.log_softmax(logits_NV), np.float64)
    p_NV = np.exp(logp_NV)
    return (p_NV * logp_NV).sum(-1)[:, None] - p_NV @ logp_NV.T
