"""Distributions and label words against NumPy in float64, from states and a head that may cap its logits (Gemma 2)."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from knnprompt_jax import errors, lm
from knnprompt_jax.methods import method, registry
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.settings import methods, stores
from knnprompt_jax.store import codec, placement, representations, search
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.tasks import catalogue, sources, splits
from tests.store import worlds

VOCABULARY, WIDTH, CAP, LABEL_IDS = 503, 13, 3.0, (5, 11, 97)


def make(cap, shift=0.0, dtype=jnp.float32, error=0.0):
    """A head, states and their log-probabilities in float64; log Z of the states has an error."""
    rng, rows = np.random.default_rng(0), placement.ROWS_PER_TILE + 3
    head_VE = jnp.asarray(rng.normal(size=(VOCABULARY, WIDTH)), dtype).at[:, 0].set(1)
    hidden_NE = rng.normal(size=(rows, WIDTH)).astype(np.float32)
    hidden_NE[:, 0] = shift  # Moves all logits, as trained heads do.
    logits_NV = hidden_NE.astype(np.float64) @ np.asarray(head_VE, np.float64).T
    logits_NV = cap * np.tanh(logits_NV / cap) if cap else logits_NV
    logp_NV = special.log_softmax(logits_NV, axis=-1)
    log_z_N = (logits_NV - logp_NV)[:, 0].astype(np.float32) + error
    return head_lib.Head(head_VE, cap), lm.States(jnp.asarray(hidden_NE), jnp.asarray(log_z_N)), logp_NV


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("cap, shift", [(None, 0.0), (None, -90.0), (CAP, 0.0)])
@pytest.mark.parametrize("error", [0.0, 0.01])
def test_distributions_are_those_of_float64(cap, shift, dtype, error):
    """The head's values are taken as stored, all else is float32. An error of log Z does not pass to the distribution."""
    head, states, logp_NV = make(cap, shift, dtype, error)
    got_NV = representations.represent(head, states, "distribution", ())
    assert got_NV.dtype == jnp.float32
    np.testing.assert_allclose(got_NV, logp_NV, atol=5e-5)
    np.testing.assert_allclose(np.exp(np.asarray(got_NV, np.float64)).sum(-1), 1, atol=2e-6)
    labels_NC = representations.label_log_probabilities(head, states, LABEL_IDS)
    np.testing.assert_allclose(labels_NC, logp_NV[:, LABEL_IDS] - error, atol=5e-5)


@pytest.mark.parametrize("direction", stores.DIRECTIONS)
def test_a_capped_head_needs_a_dense_store(direction):
    head, states, logp_NV = make(CAP)
    given = direction, head, states[:19], np.arange(19) % 3, LABEL_IDS
    store = store_lib.build(stores.StoreOptions("auto"), *given)
    assert type(store.codec) is codec.Codec
    nearest = store.search(states[19:], search.SearchOptions(5, direction))
    worlds.check_ranks(nearest.indices_Qk, worlds.divergences(direction, logp_NV[19:], logp_NV[:19]))
    with pytest.raises(errors.UserError, match="caps its logits at 3, .*choose kind='dense'"):
        store_lib.build(stores.StoreOptions("factored"), *given)


def test_methods_that_need_a_linear_head_are_left_out():
    """Before any weight is loaded: of all methods with the reason, by name or by option as one error."""
    task = catalogue.get("demo")
    train = sources.load_rows(task, "train")
    split = splits.draw(train, task, shots=3, demo_shots=1, seed=1)
    problem = method.Problem(task, split, train[:3], lambda texts: [[*text.encode()] for text in texts], logit_cap=CAP)
    chosen, reasons = registry.select(("all",), problem)
    assert "caps its logits at 3" in reasons["linear_probe_log_p"]
    assert "linear_probe" in {each.name for each in chosen}
    with pytest.raises(errors.UserError, match="'linear_probe_log_p' does not apply: .*caps its logits"):
        registry.select(("linear_probe_log_p",), problem)
    with pytest.raises(errors.UserError, match="caps its logits at 3, .*choose representation='hidden'"):
        registry.get("linear_probe").check_options(problem, methods.ProbeOptions(representation="log_probabilities"))
