"""States do not depend on the memory order of weights, which differs on TPUs."""

import types

import numpy as np
import pytest
from jax.experimental.layout import Format

from knnprompt_jax import lm, parallel
from knnprompt_jax import states as states_lib
from knnprompt_jax.models import registry, sharding
from knnprompt_jax.prompts import layout


def states(model):
    tokens_NT = np.random.default_rng(3).integers(0, model.config.vocab_size, (7, 13)).astype(np.int32)
    group = layout.PromptGroup(tokens_NT[0, :5], tuple(tokens_NT[:, 5:]), np.arange(7))
    return states_lib.read(lm.LanguageModel(model, range(model.config.vocab_size)), layout.Prompts((group,), 7))


def test_states_do_not_depend_on_layouts(small_decoder, monkeypatch):
    expected = states(small_decoder("gpt2"))
    monkeypatch.setattr(sharding, "_layouts", lambda config, mesh: {**sharding._TPU_LAYOUTS, "tokens": (1, 0)})
    model = lm.LanguageModel(small_decoder("gpt2"), range(211))
    tokens = model.head.rows_VE
    assert tokens.format.layout.major_to_minor == (1, 0)
    found = states(small_decoder("gpt2"))
    np.testing.assert_allclose(found.hidden_NE, expected.hidden_NE, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.log_z_N, expected.log_z_N, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "model", "q_order", "kv_order"),
    [
        ("facebook/opt-6.7b", 2, None, (0, 2, 1, 3, 4)),
        ("facebook/opt-30b", 8, (0, 2, 3, 1), (0, 2, 3, 4, 1)),  # Seven heads on each device.
        ("meta-llama/Meta-Llama-3-8B", 2, None, (0, 2, 1, 3, 4)),
        ("Qwen/Qwen3-32B", 8, None, (0, 2, 3, 4, 1)),  # One key head.
        ("gpt2-xl", 1, None, None),
    ],
)
def test_layouts_differ_only_on_tpus(name, model, q_order, kv_order):
    config = registry.published(name)
    on_tpu = types.SimpleNamespace(abstract_device=types.SimpleNamespace(platform="tpu"))
    layouts = sharding._layouts(config, types.SimpleNamespace(abstract_mesh=on_tpu, shape={"model": model}))
    orders = [layouts.get(f"blocks.attention.{kernel}_kernel") for kernel in ("q", "kv")]
    assert orders == [q_order, kv_order] and layouts["tokens"] == (0, 1)
    place = sharding.placement(config, parallel.make_mesh(1, 1))
    assert not isinstance(place("tokens"), Format)
