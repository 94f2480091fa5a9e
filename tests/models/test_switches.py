"""Every switch of a decoder matters: with a value other than its config.json's, it is no longer PyTorch's model."""

import dataclasses
import math

import jax
import numpy as np
import pytest
from flax import nnx

torch = pytest.importorskip("torch", reason="parity is with PyTorch")
from knnprompt_jax.models import config as config_lib  # noqa: E402
from knnprompt_jax.models import registry, rotary  # noqa: E402
from tests.models import test_parity, torch_models  # noqa: E402

SIZES = ["family", "vocab_size", "width", "num_layers", "num_heads", "num_kv_heads", "head_size", "mlp_width"]
SIZES += ["num_positions", "embed_width", "position_offset", "gated_mlp"]


def _plain(pairs: int, base: float) -> tuple[rotary.Frequencies]:
    return (rotary.Frequencies(tuple(base ** -(np.arange(pairs) / pairs))),)


# Shape, switch and a wrong value.
WRONG = [
    ("gpt2", "position_table", False),
    ("gpt2-scaled-by-layer", "scale_by_layer", False),
    ("gpt2-scaled-by-layer", "activation", "relu"),
    ("gpt2-untied", "attention_scale", 7**-0.5),
    ("gpt2-untied", "tied_head", True),
    ("gpt2-untied", "out_bias", False),
    ("opt-350m", "norm_places", ("before",)),
    ("opt-untied", "final_norm", True),
    ("llama", "rotary", ()),
    ("llama", "norm", "layer"),
    ("llama-biases", "qkv_bias", False),
    ("llama-biases", "mlp_bias", False),
    ("llama-biases", "norm_epsilon", 1e-5),
    ("llama-biases", "rotary", _plain(5, 100.0)),
    ("llama-llama3", "rotary", _plain(7, 100.0)),
    ("mistral", "windows", ()),
    ("mistral-tied", "windows", ()),
    ("qwen2-tied", "windows", (5, 5, 5)),
    ("qwen3", "qk_norm", ""),
    ("qwen3-tied", "windows", (0, 5, 0)),
    ("gemma2", "attention_cap", None),
    ("gemma2", "logit_cap", None),
    ("gemma2", "embed_scale", 1.0),
    ("gemma2", "norm", "rms"),
    ("gemma2", "norm_places", ("before",)),
    ("gemma2-untied", "windows", (0, 13, 0)),
    ("gemma3", "rotary_of_layer", ()),
    ("gemma3-untied", "rotary_of_layer", (1,) * 5),
    ("gpt_neox", "parallel_residual", False),
    ("gpt_neox-tied", "parallel_residual", True),
    ("gpt_neox-no-biases", "rotary", _plain(2, 1e4)),
    ("olmo2", "norm_places", ("before",)),
    ("olmo2", "qk_norm", ""),
    ("phi", "head_bias", False),
    ("phi", "norm_places", ("before",)),
    ("phi3-tied", "windows", ()),
    ("smollm3", "rotary_of_layer", ()),
    ("smollm3-untied", "windows", ()),
]


def test_every_switch_is_tried():
    switches = {field.name for field in dataclasses.fields(config_lib.DecoderConfig)} - set(SIZES)
    assert switches == {field for _, field, _ in WRONG}


@pytest.mark.long
@pytest.mark.parametrize(("shape", "field", "value"), WRONG)
def test_another_value_is_another_model(pair, shape, field, value):
    _, ours = pair(shape)
    assert getattr(ours.config, field) != value
    _assert_differs(pair(shape), **{field: value})


@pytest.mark.long
@pytest.mark.parametrize("shape", ["llama-yarn", "phi3-tied"])
def test_the_factor_of_scaled_rotations_matters(pair, shape):
    _, ours = pair(shape)
    (table,) = ours.config.rotary
    assert table.scale != 1
    _assert_differs(pair(shape), rotary=(dataclasses.replace(table, scale=1.0),))


def _assert_differs(models: tuple, **switch: object) -> None:
    """Give the same weights another configuration; weights that only this one has do nothing."""
    model, ours = models
    graph, state = nnx.split(registry.abstract(dataclasses.replace(ours.config, **switch)))
    known = {path: leaf[...] for path, leaf in nnx.to_flat_state(nnx.state(ours))}
    for path, leaf in nnx.to_flat_state(state):
        value = known.get(path, np.full(leaf.shape, path[-1] == "scale", np.float32))
        assert value.shape == leaf.shape
        leaf.set_value(value)
    want_BTV = torch_models.log_probabilities(model, test_parity.TOKENS_BT)
    got_BTV = jax.device_get(test_parity.log_probabilities(nnx.merge(graph, state)))
    assert math.isfinite(got_BTV.sum())
    assert np.abs(got_BTV - want_BTV).max() > 1000 * test_parity.TOLERANCE
