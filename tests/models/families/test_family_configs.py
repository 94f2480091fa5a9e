"""A config.json becomes the decoder that `transformers` would build, or its unsupported keys are refused by name."""

import importlib
import json
import pathlib
import re

import numpy as np
import pytest

transformers = pytest.importorskip("transformers")
pytest.importorskip("torch", reason="frequencies are compared with PyTorch's")
from knnprompt_jax.common import errors  # noqa: E402
from knnprompt_jax.models import config as config_lib  # noqa: E402
from knnprompt_jax.models import registry  # noqa: E402
from tests.models import shapes  # noqa: E402

CONFIGS = json.loads(pathlib.Path(__file__).with_name("published_configs.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_published_config(name, tmp_path):
    """A config and its copy saved by `transformers` give the same decoder, as in our table of published sizes."""
    hf, published_name = CONFIGS[name], name.split(" ")[0]
    config = registry.config_from_hf(hf)
    if published_name in registry.PUBLISHED:
        assert config == registry.config_from_hf(registry.PUBLISHED[published_name])
    transformers.CONFIG_MAPPING[hf["model_type"]].from_dict(hf).save_pretrained(tmp_path)
    assert registry.config_from_hf(config_lib.read(tmp_path / "config.json")) == config


# Keys without effect, because another key overrides them.
MEANINGLESS = {
    "qwen2-tied": {"max_window_layers", "sliding_window"},
    "qwen3-tied": {"max_window_layers", "sliding_window"},
    "gemma3": {"_sliding_window_pattern", "sliding_window_pattern"},
    "phi3-tied": {"partial_rotary_factor"},
    "smollm3-untied": {"max_window_layers", "no_rope_layer_interval", "sliding_window"},
    "gpt_neox": {"is_decoder"},
    "llama": {"pretraining_tp"},
}
WIDE_SHAPES = ["llama", "mistral", "qwen2-tied", "qwen3-tied", "gemma3", "gpt_neox", "olmo2", "phi"]
WIDE_SHAPES += ["phi3-tied", "smollm3-untied", "gpt2", "opt"]


@pytest.mark.parametrize("shape", WIDE_SHAPES)
def test_no_key_of_transformers_is_ignored(shape):
    """Each changes the decoder or is refused, unless it is known to change nothing."""
    hf = json.loads(shapes.SHAPES[shape].to_json_string(use_diff=False))
    config = registry.config_from_hf(hf)
    harmless = {*config_lib._HARMLESS.split(), *MEANINGLESS.get(shape, ())}
    for key, value in hf.items():
        if key in harmless or key.startswith(config_lib._HARMLESS_PREFIXES):
            continue
        other = not value if isinstance(value, bool) else value + 2 if isinstance(value, (int, float)) else "other"
        try:
            changed = registry.config_from_hf({**hf, key: other})
        except errors.UserError:
            continue
        assert changed != config, f"{key}={other!r} changes nothing"


ROPE = {"rope_type": "default", "rope_theta": 1e4}
SHORT = {"type": "su", "short_factor": [1], "long_factor": [1]}
WORDS = {"type": "su", "short_factor": ["x"] * 48, "long_factor": ["x"] * 48}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0}


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("Llama-3.1-8B", {"is_causal": False}, "is_causal=False: it is not supported; only is_causal=True is"),
        ("Llama-3.1-8B", {"rope_interleaved": True}, "rope_interleaved=True: not supported, and it may change"),
        ("Llama-3.1-8B", {"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5: this family supports only 1"),
        ("Llama-3.1-8B", {"rope_scaling": {**ROPE, "mrope_section": [16]}}, "mrope_section=[16]: not supported"),
        ("Llama-3.1-8B", {"rope_scaling": LLAMA3}, "low_freq_factor=4.0: it is not below high_freq_factor=4.0"),
        ("Llama-3.1-8B", {"num_key_value_heads": 5}, "num_key_value_heads=5: it does not divide 32"),
        ("Llama-3.1-8B", {"head_dim": 129}, "rotary embedding needs an even part of a head of 129"),
        ("Qwen2.5-7B", {"layer_types": ["sliding_attention"] * 28}, "it is not 28 of full_attention, one for each"),
        ("gemma-3-1b-pt", {"rope_parameters": ROPE}, "rope_type, rope_theta, and not slidi"),
        ("pythia-160m", {"rope_theta": 5e5}, "rope_theta=500000.0: its older name has 10000"),
        ("Phi-3-mini-128k-instruct", {"rope_scaling": SHORT}, "a/config.json: short_factor=[1]: it is not 48 positive"),
        ("Phi-3-mini-128k-instruct", {"rope_scaling": WORDS}, "short_factor=['x', 'x', "),
        ("Phi-3-mini-128k-instruct", {"original_max_position_embeddings": 1}, "=1: LongRoPE needs at least 2"),
        (
            "gemma-3-1b-pt",
            {"rope_parameters": {"full_attention": "x"}},
            "rope_parameters.full_attention='x': it is not",
        ),
    ],
)
def test_unsupported_values_are_refused_by_name(name, change, message):
    (hf,) = (hf for whole_name, hf in CONFIGS.items() if whole_name.endswith(f"/{name}"))
    with pytest.raises(errors.UserError, match=re.escape(message)):
        registry.config_from_hf({**hf, **change}, path="a/config.json")


BANDS = CONFIGS["meta-llama/Llama-3.1-8B"]["rope_scaling"]
# A published model with another scaling.
RESCALED = {
    "linear": ("google/gemma-3-1b-pt", {"rope_type": "linear", "factor": 8.0}),
    "dynamic NTK": ("huggyllama/llama-7b", {"type": "dynamic", "factor": 2.0}),
    "Llama 3.2": ("meta-llama/Llama-3.1-8B", {**BANDS, "factor": 32.0}),
}
SCALED = {
    **{name: hf for name, hf in CONFIGS.items() if hf["model_type"] not in ("gpt2", "opt")},
    **{name: CONFIGS[published] | {"rope_scaling": scaling} for name, (published, scaling) in RESCALED.items()},
}


@pytest.mark.parametrize("name", sorted(SCALED))
def test_frequencies_are_those_of_transformers(name):
    hf = SCALED[name]
    package = hf["model_type"].removesuffix("_text")
    modeling = importlib.import_module(f"transformers.models.{package}.modeling_{package}")
    (class_name,) = (name for name in vars(modeling) if name.endswith("RotaryEmbedding"))
    theirs = getattr(modeling, class_name)(transformers.CONFIG_MAPPING[hf["model_type"]].from_dict(hf))
    ours = registry.config_from_hf(hf).rotary
    if package == "smollm3":  # Ours has a table of zeros for layers without positions.
        assert not any(ours[1].radians)
        ours = ours[:1]
    kinds = ["sliding_attention_", "full_attention_"] if package == "gemma3" else [""]
    for table, kind in zip(ours, kinds, strict=True):
        np.testing.assert_allclose(np.float32(table.radians), getattr(theirs, f"{kind}inv_freq").numpy(), rtol=3e-6)
        assert table.scale == pytest.approx(getattr(theirs, f"{kind}attention_scaling"), rel=1e-6)


def test_contexts():
    """LongRoPE ends where its long factors would begin, dynamic NTK where it would begin to scale."""
    contexts = {name: registry.config_from_hf(hf).num_positions for name, hf in SCALED.items()}
    assert contexts["microsoft/Phi-3-mini-128k-instruct"] == contexts["microsoft/Phi-4-mini-instruct"] == 4096
    assert contexts["dynamic NTK"] == 2048
    assert contexts["meta-llama/Llama-3.1-8B"] == 131072
