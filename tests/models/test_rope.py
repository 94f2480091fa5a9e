"""Frequencies of rotary positions at published sizes are those of `transformers`' rotary modules."""

import importlib
import json
import pathlib

import numpy as np
import pytest

transformers = pytest.importorskip("transformers")
pytest.importorskip("torch", reason="frequencies are compared with PyTorch's")
from knnprompt_jax import errors  # noqa: E402
from knnprompt_jax.models import config, registry  # noqa: E402
from knnprompt_jax.models.families import rope  # noqa: E402

CONFIGS = json.loads(pathlib.Path(__file__).with_name("published_configs.json").read_text(encoding="utf-8"))
LLAMA3 = CONFIGS["meta-llama/Llama-3.1-8B"]["rope_scaling"]
# A published model with another scaling.
RESCALED = {
    "linear": ("google/gemma-3-1b-pt", {"rope_type": "linear", "factor": 8.0}),
    "dynamic NTK": ("huggyllama/llama-7b", {"type": "dynamic", "factor": 2.0}),
    "Llama 3.2": ("meta-llama/Llama-3.1-8B", {**LLAMA3, "factor": 32.0}),
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


def test_factors_of_a_gguf_file_divide():
    table = config.Frequencies((1.0, 0.5, 0.25), 1.5)
    assert rope.divided(table, [1.0, 2.0, 8.0]) == config.Frequencies((1.0, 0.25, 0.03125), 1.5)
    assert rope.divided(table, None) is table
    for factors in ([1.0, 2.0], [1.0, 2.0, 0.0], "not a list"):
        with pytest.raises(errors.UserError, match="rope_freqs: 3 positive factors are needed"):
            rope.divided(table, factors)
