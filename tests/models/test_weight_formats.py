"""Each published weight format gives the same decoder, and exports load in `transformers`."""

import copy

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="weights in the published formats are made with PyTorch")
from knnprompt_jax.models import hub  # noqa: E402
from tests.models import torch_models  # noqa: E402
from tools import export_model  # noqa: E402

SHAPES = ["gpt2", "gpt2-untied", "opt", "opt-350m", "opt-untied"]
# Families without Flax files.
NEWER_SHAPES = ["llama-biases", "mistral", "qwen2-tied", "qwen3", "gemma3", "gpt_neox", "gpt_neox-tied"]
NEWER_SHAPES += ["olmo2", "phi", "phi-tied", "phi3", "phi3-tied", "smollm3"]
TOKENS_BT = np.random.default_rng(1).integers(0, 53, (2, 23))


@pytest.mark.parametrize(
    ("shape", "layout", "sharded"),
    [
        *((shape, layout, shape != "gpt2") for shape in SHAPES for layout in sorted(torch_models.FORMATS)),
        *((shape, "torch", True) for shape in NEWER_SHAPES),
    ],
)
def test_formats_load_alike(pair, tmp_path, shape, layout, sharded):
    model, want = pair(shape)
    torch_models.FORMATS[layout](model, tmp_path, sharded)
    assert (len(hub.find_weights(tmp_path)) > 1) == sharded
    jax.tree.map(np.testing.assert_array_equal, torch_models.load(tmp_path), want)
    assert (hub.resolve(str(tmp_path)) == tmp_path) == (layout == "safetensors")


@pytest.mark.parametrize("layout", ["safetensors", "torch", "flax"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_precisions(tmp_path, layout, dtype):
    model = torch_models.make("gpt2").to(dtype)
    if layout == "safetensors":
        torch_models.write_safetensors(model, tmp_path, sharded=False)
    elif layout == "torch":
        torch.save(torch_models.state(model), tmp_path / "pytorch_model.bin")
    else:
        dtype = ml_dtypes.bfloat16 if dtype == torch.bfloat16 else np.float64
        torch_models.write_flax(model.float(), tmp_path, sharded=False, dtype=dtype)
    model.config.save_pretrained(tmp_path)
    ours = torch_models.load(tmp_path)
    np.testing.assert_array_equal(ours.tokens[...], model.transformer.wte.weight.detach().float().numpy())


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        *((shape, jnp.float32) for shape in ("gpt2-untied", "gemma3", "phi3")),
        ("opt-350m", jnp.float16),
        ("smollm3", jnp.bfloat16),
    ],
)
def test_export_loads_in_transformers(pair, tmp_path, shape, dtype):
    (model, ours), folder = pair(shape), tmp_path / "new" / "folder"
    export_model.save(folder, ours, model.config.to_dict(), dtype)
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    again, report = torch_models.transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, attn_implementation="eager"
    )
    assert type(again) is type(model)
    assert not any(report.values()), report
    assert again.dtype == getattr(torch, jnp.dtype(dtype).name)
    rounded = copy.deepcopy(model)
    for weight in rounded.parameters():  # Buffers, such as frequencies, stay in float32.
        weight.data = weight.data.to(again.dtype).float()
    want_BTV = torch_models.log_probabilities(rounded, TOKENS_BT)
    np.testing.assert_allclose(torch_models.log_probabilities(again.eval().float(), TOKENS_BT), want_BTV, atol=1e-6)
    if dtype == jnp.float32:
        jax.tree.map(np.testing.assert_array_equal, torch_models.load(folder), ours)
