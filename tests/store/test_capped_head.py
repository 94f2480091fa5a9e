"""A head that caps its logits (Gemma 2): distributions follow from states, and methods that need a linear head refuse it."""

import jax.numpy as jnp
import numpy as np
import pytest

from knnprompt_jax import errors, lm
from knnprompt_jax.methods import linear_probe, method, registry
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.store import distances, representations, search
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.tasks import catalogue, sources, splits
from tests.store import worlds

CAP, LABEL_IDS = 3.0, (5, 11, 97)


@pytest.fixture(scope="module")
def capped():
    """The head, 19 anchors and 7 queries, and their log-probabilities by NumPy in float64."""
    rng = np.random.default_rng(3)
    rows_VE = rng.normal(size=(101, 13)).astype(np.float32)
    hidden_NE = rng.normal(size=(26, 13)).astype(np.float32)
    logits_NV = CAP * np.tanh(hidden_NE.astype(np.float64) @ rows_VE.T.astype(np.float64) / CAP)
    log_z_N = np.log(np.exp(logits_NV).sum(-1))
    states = lm.States(jnp.asarray(hidden_NE), jnp.asarray(log_z_N, jnp.float32))
    return head_lib.Head(jnp.asarray(rows_VE), CAP), states, logits_NV - log_z_N[:, None]


def build(capped, kind, distance):
    head, states, _ = capped
    return store_lib.build(store_lib.StoreOptions(kind), distance, head, states[:19], np.arange(19) % 3, LABEL_IDS)


def test_distributions_and_label_words(capped):
    head, states, logp_NV = capped
    np.testing.assert_allclose(representations.log_probabilities(head, states), logp_NV, atol=1e-5)
    labels_NC = representations.label_log_probabilities(head, states, LABEL_IDS)
    np.testing.assert_allclose(labels_NC, logp_NV[:, list(LABEL_IDS)], atol=1e-5)
    uncapped_NV = representations.log_probabilities(head_lib.Head(head.rows_VE), states)
    assert np.abs(uncapped_NV - logp_NV).max() > 0.5, "the cap must matter for this to test anything"


@pytest.mark.parametrize("direction", distances.DIRECTIONS)
def test_a_dense_store_is_chosen_and_searches_for_the_nearest(capped, direction):
    _, states, logp_NV = capped
    store = build(capped, "auto", direction)
    assert store.codec.kind == "dense"
    nearest = store.search(states[19:], search.SearchOptions(5, direction))
    want_QN = worlds.divergences(direction, logp_NV[19:], logp_NV[:19])
    np.testing.assert_array_equal(nearest.indices_Qk, np.argsort(want_QN, -1)[:, :5])


def test_what_needs_a_linear_head_refuses_it(capped):
    with pytest.raises(errors.UserError, match="caps its logits at 3, .*choose kind='dense'"):
        build(capped, "factored", "forward")


def test_a_run_leaves_out_what_the_model_does_not_allow():
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
        registry.get("linear_probe").prepare(problem, linear_probe.Settings(representation="log_probabilities"))
