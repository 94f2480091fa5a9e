"""Every switch of a decoder matters: with another value than its config.json gives, it is no longer PyTorch's model."""

import dataclasses
import math

import jax
import numpy as np
import pytest
from flax import nnx

torch = pytest.importorskip("torch", reason="parity is with PyTorch")
from knnprompt_jax.models import config as config_lib  # noqa: E402
from knnprompt_jax.models import decoder, registry, rotary  # noqa: E402
from tests.models import test_parity, torch_models  # noqa: E402

SIZES = ["family", "vocab_size", "width", "num_layers", "num_heads", "num_kv_heads", "head_size", "mlp_width"]
SIZES += ["num_positions", "embed_width", "position_offset", "gated_mlp"]


def _plain(pairs: int, base: float) -> tuple[rotary.Frequencies]:
    return (rotary.Frequencies(tuple(base ** -(np.arange(pairs) / pairs))),)


# Shape, switch and a wrong value: its default, where the shape has another.
WRONG = [
    ("gpt2", "position_table", False),
    ("gpt2-unscaled", "attention_scale", 7**-0.5),
    ("gpt2-scaled-by-layer", "scale_by_layer", False),
    ("gpt2-scaled-by-layer", "activation", "relu"),
    ("gpt2-untied", "tied_head", True),
    ("gpt2-untied", "out_bias", False),
    ("opt", "activation", "gelu_new"),
    ("opt-350m", "norm_places", ("before",)),
    ("opt-no-final-norm", "final_norm", True),
    ("llama", "rotary", ()),
    ("llama", "rotary", _plain(5, 1e4)),
    ("llama", "activation", "gelu_new"),
    ("llama", "norm", "layer"),
    ("llama", "tied_head", True),
    ("llama-tied", "norm_epsilon", 1e-5),
    ("llama-biases", "qkv_bias", False),
    ("llama-biases", "out_bias", False),
    ("llama-biases", "mlp_bias", False),
    ("llama-linear", "rotary", _plain(5, 100.0)),
    ("llama-llama3", "rotary", _plain(5, 100.0)),
    ("llama-yarn", "rotary", _plain(5, 100.0)),
    ("mistral", "windows", ()),
    ("mistral-tied", "windows", ()),
    ("qwen2", "qkv_bias", False),
    ("qwen2-windows", "windows", ()),
    ("qwen2-windows", "windows", (5, 5, 5)),
    ("qwen3", "qk_norm", ""),
    ("qwen3-windows", "windows", (0, 5, 0)),
    ("gemma2", "attention_cap", None),
    ("gemma2", "logit_cap", None),
    ("gemma2", "attention_scale", 6**-0.5),
    ("gemma2", "embed_scale", 1.0),
    ("gemma2", "norm", "rms"),
    ("gemma2", "norm_places", ("before",)),
    ("gemma2", "windows", ()),
    ("gemma2-no-caps", "windows", (0, 13, 0)),
    ("gemma3", "qk_norm", ""),
    ("gemma3", "windows", ()),
    ("gemma3", "rotary_of_layer", ()),
    ("gemma3-linear", "rotary_of_layer", (1,) * 5),
    ("gemma3-capped", "logit_cap", None),
    ("gpt_neox", "rotary", _plain(5, 1e4)),
    ("gpt_neox", "parallel_residual", False),
    ("gpt_neox-not-parallel", "parallel_residual", True),
    ("gpt_neox-not-parallel", "norm_epsilon", 1e-5),
    ("gpt_neox-no-biases", "rotary", _plain(2, 1e4)),
    ("olmo2", "norm_places", ("before",)),
    ("olmo2", "qk_norm", ""),
    ("olmo2-yarn", "rotary", _plain(5, 1e3)),
    ("phi", "head_bias", False),
    ("phi", "rotary", _plain(5, 1e4)),
    ("phi", "parallel_residual", False),
    ("phi", "norm_places", ("before",)),
    ("phi3-tied", "windows", ()),
    ("phi3-long", "rotary", _plain(5, 1e4)),
    ("smollm3", "rotary_of_layer", ()),
    ("smollm3-untied", "rotary_of_layer", (0, 1, 0, 1, 0)),
    ("smollm3-windows", "windows", ()),
]


def test_every_switch_is_tried():
    switches = {field.name for field in dataclasses.fields(config_lib.DecoderConfig)} - set(SIZES)
    assert switches == {field for _, field, _ in WRONG}


@pytest.mark.parametrize(("shape", "field", "value"), WRONG)
def test_another_value_is_another_model(pair, shape, field, value):
    model, ours = pair(shape)
    assert getattr(ours.config, field) != value
    _differs(model, _changed(ours, **{field: value}))


@pytest.mark.parametrize("shape", ["llama-yarn", "llama-yarn-mscale", "llama-yarn-attention", "phi3-long"])
def test_the_factor_of_scaled_rotations_matters(pair, shape):
    model, ours = pair(shape)
    (table,) = ours.config.rotary
    assert table.scale != 1
    _differs(model, _changed(ours, rotary=(dataclasses.replace(table, scale=1.0),)))


def _changed(ours: decoder.Decoder, **switch: object) -> decoder.Decoder:
    """The same weights under another configuration; those that only that has do nothing."""
    graph, state = nnx.split(registry.abstract(dataclasses.replace(ours.config, **switch)))
    known = {path: leaf[...] for path, leaf in nnx.to_flat_state(nnx.state(ours))}
    for path, leaf in nnx.to_flat_state(state):
        value = known.get(path, np.full(leaf.shape, path[-1] == "scale", np.float32))
        assert value.shape == leaf.shape
        leaf.set_value(value)
    return nnx.merge(graph, state)


def _differs(model: torch_models.transformers.PreTrainedModel, changed: decoder.Decoder) -> None:
    want_BTV = torch_models.log_probabilities(model, test_parity.TOKENS_BT)
    got_BTV = jax.device_get(test_parity._log_probabilities(changed))
    assert math.isfinite(got_BTV.sum())
    assert np.abs(got_BTV - want_BTV).max() > 1000 * test_parity.TOLERANCE
