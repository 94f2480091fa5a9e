"""Damaged, mismatched or unsupported checkpoints are refused in one line that names the problem and the file."""

import json
import os
import re
import sys

import jax
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="weights in the published formats are made with PyTorch")
import safetensors.torch  # noqa: E402

from knnprompt_jax.common import errors  # noqa: E402
from knnprompt_jax.models import hub  # noqa: E402
from tests.models import torch_models  # noqa: E402

WEIGHTS = {"safetensors": "model.safetensors", "torch": "pytorch_model.bin", "flax": "flax_model.msgpack"}


def _rewrite(folder, change) -> None:
    """Apply `change` to the tensors of the folder's safetensors file."""
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    change(tensors)
    safetensors.torch.save_file(tensors, folder / "model.safetensors")


@pytest.fixture
def folder(pair, tmp_path):
    torch_models.write_safetensors(pair("gpt2")[0], tmp_path, sharded=False)
    return tmp_path


def _fails(folder) -> str:
    with pytest.raises(errors.UserError) as failure:
        torch_models.load(folder)
    return str(failure.value)


def test_all_mismatches_in_one_message(folder):
    def change(tensors: dict) -> None:
        del tensors["transformer.h.1.ln_2.bias"]
        tensors["transformer.h.2.ln_2.bias"] = torch.zeros(35)
        tensors["h.0.ln_1.bias"] = torch.zeros(35)
        tensors["transformer.wpe.weight"] = torch.zeros(35, 29)
        tensors["transformer.ln_f.bias"] = torch.zeros(35, dtype=torch.int32)

    _rewrite(folder, change)
    message = _fails(folder)
    assert "1 unknown (transformer.h.2.ln_2.bias)" in message
    assert "2 missing (transformer.h.1.ln_2.bias, transformer.ln_f.bias)" in message
    assert "1 duplicate (" in message and "h.0.ln_1.bias = transformer.h.0.ln_1.bias" in message
    assert "1 misshapen (transformer.wpe.weight is [35, 29] and should be [29, 35])" in message


def test_non_finite_values_are_refused(folder):
    _rewrite(folder, lambda tensors: tensors["transformer.h.1.mlp.c_fc.weight"].__setitem__((3, 5), float("nan")))
    message = _fails(folder)
    assert "transformer.h.1.mlp.c_fc.weight holds NaN or infinity" in message and "model.safetensors" in message


def test_the_copy_of_a_tied_head_is_skipped_as_in_transformers(folder, pair):
    _rewrite(folder, lambda tensors: tensors.update({"lm_head.weight": torch.ones(53, 35)}))
    jax.tree.map(np.testing.assert_array_equal, torch_models.load(folder), pair("gpt2")[1])


@pytest.mark.parametrize(("layout", "kept"), [("safetensors", 0.5), ("torch", 0), ("flax", 0.999)])
def test_truncated_file(pair, tmp_path, layout, kept):
    torch_models.FORMATS[layout](pair("opt")[0], tmp_path, sharded=False)
    file = tmp_path / WEIGHTS[layout]
    data = file.read_bytes()
    file.write_bytes(data[: int(kept * len(data))])
    assert re.search(rf"^{tmp_path}.*: (truncated or corrupt|it cannot be converted|it holds code)", _fails(tmp_path))


@pytest.mark.parametrize("layout", sorted(WEIGHTS))
def test_missing_shard(pair, tmp_path, layout):
    torch_models.FORMATS[layout](pair("opt")[0], tmp_path, sharded=True)
    missing = hub.find_weights(tmp_path)[1]
    missing.unlink()
    assert re.search(rf"{WEIGHTS[layout]}.index.json: 1 of \d+ files are missing: {missing.name}", _fails(tmp_path))
    index = tmp_path / f"{WEIGHTS[layout]}.index.json"
    for damaged, message in (([1], "not an index of weights"), ({"w": "../x"}, "1 of 1 files are missing: ../x")):
        index.write_text(json.dumps({"weight_map": damaged}))
        assert f"{index.name}: {message}" in _fails(tmp_path)


@pytest.mark.parametrize("zipped", [True, False])
def test_pickle_that_would_run_code_is_refused(pair, tmp_path, zipped):
    class Payload:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "it ran"),))

    torch_models.write_torch(pair("opt")[0], tmp_path, sharded=False)
    torch.save({"code": Payload()}, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    message = _fails(tmp_path)
    assert "pytorch_model.bin: it holds code or is damaged; use safetensors instead" in message
    assert "weights_only" not in message and not (tmp_path / "it ran").exists()


def test_bin_without_torch(pair, tmp_path, monkeypatch):
    torch_models.write_torch(pair("opt-350m")[0], tmp_path, sharded=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "pytorch_model.bin: reading it needs PyTorch: `pip install torch`, or convert it" in _fails(tmp_path)


def test_damaged_or_missing_config(folder):
    unsupported = "model_type='bert': it is not supported; choices: gemma3_text, gpt2, "
    damaged = {"{": "not readable as JSON", "[]": "no JSON object", '{"model_type": "bert"}': unsupported}
    for text, message in damaged.items():
        (folder / "config.json").write_text(text)
        assert message in _fails(folder) and str(folder) in _fails(folder)
    (folder / "config.json").unlink()
    assert "No such file" in _fails(folder)
