"""GGUF files give the tensors and config of the `transformers` models that they were made from.

Damaged and unsupported files are refused in one line.
"""

import functools
import struct

import gguf
import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the models to be read are made with PyTorch")
import transformers  # noqa: E402

from knnprompt_jax.common import errors  # noqa: E402
from knnprompt_jax.models import hub, registry, tokenizers  # noqa: E402
from knnprompt_jax.models.convert import gguf_model  # noqa: E402
from tests.models import gguf_writer, torch_models  # noqa: E402

make = functools.cache(gguf_writer.make)
# Ids of tokens are the tokenizer's.
IGNORED = {"architectures", "dtype", "transformers_version", "bos_token_id", "eos_token_id", "pad_token_id"}


def read(file, shape):
    """Return all tensors by their name in `transformers`."""
    found = list(gguf_model.tensors(gguf_model.read(file)))
    assert len({tensor.name for tensor in found}) == len(found)
    return {tensor.name: tensor for tensor in found}


@pytest.mark.parametrize("shape", sorted(gguf_writer.CONFIGS))
def test_tensors_and_config_are_the_model(shape, tmp_path):
    gguf_writer.write(file := tmp_path / "model.gguf", shape, make(shape))
    want, found = gguf_writer.make_state(make(shape)), read(file, shape)
    assert set(found) == set(want)
    for name, tensor in found.items():
        array = tensor.read()
        assert (tensor.shape, tensor.dtype) == (array.shape, array.dtype) == (want[name].shape, np.float32)
        np.testing.assert_array_equal(array, want[name], err_msg=name)

    wanted, config = make(shape).config.to_dict(), gguf_model.config_json(gguf_model.read(file))
    if shape == "llama-3.1":
        decoder_config = registry.config_from_hf(config)
        frequencies = make(shape).model.rotary_emb.inv_freq.numpy()
        np.testing.assert_allclose(decoder_config.rotary[0].radians, frequencies, rtol=1e-6)
        assert (decoder_config.rotary[0].scale, decoder_config.num_positions) == (1, 131072)
        config["rope_scaling"] = make(shape).config.rope_parameters
    got = transformers.AutoConfig.for_model(**config).to_dict()
    different = {key for key in got.keys() | wanted.keys() if got.get(key) != wanted.get(key)}
    assert different <= IGNORED | ({"head_dim"} if shape == "qwen2" else set())


@pytest.mark.parametrize(
    ("shape", "kind"),
    [("llama", "F16"), ("llama", "BF16"), ("llama", "Q5_1"), ("gemma3", "Q4_1"), ("qwen2", "Q8_0"), ("qwen3", "BF16")],
)
def test_quantised_as_gguf_dequantises(tmp_path, shape, kind):
    """The converter quantises its own layout, so the expected numbers go through that layout too."""
    gguf_writer.write(tmp_path / "q.gguf", shape, make(shape), kind)
    rounded = gguf_writer.tensors(shape, make(shape))
    for name, array in rounded.items():
        quantisation = gguf_writer.kind_of(array, kind)
        rounded[name] = gguf.quants.dequantize(gguf.quants.quantize(array, quantisation), quantisation)
    gguf_writer.write_file(tmp_path / "f.gguf", gguf_writer.arch_of(shape), gguf_writer.metadata(shape), rounded)
    want, found = read(tmp_path / "f.gguf", shape), read(tmp_path / "q.gguf", shape)
    for name, tensor in found.items():
        assert tensor.read().dtype == tensor.dtype
        np.testing.assert_array_equal(tensor.read().astype(np.float32), want[name].read(), err_msg=name)
    assert any(gguf_writer.kind_of(array, kind).name == kind for array in rounded.values())


TOKENIZER = {"model": "gpt2", "pre": "gpt-2", "tokens": ["a", "b", "ab"], "token_type": [1] * 3, "merges": ["a b"]}
TOKENIZER = {f"tokenizer.ggml.{key}": value for key, value in TOKENIZER.items()}
DAMAGED = "it cannot be converted (damaged?): "


@functools.cache
def tensors_of(shape):
    return gguf_writer.tensors(shape, make(shape))


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a model with changed metadata and tensors; None removes one."""

    def write(shape="llama", changes=None, tensors=None, arch=None, kind="F32"):
        own_arch = gguf_writer.arch_of(shape)
        own = {
            key if key.startswith(("split", "tokenizer")) else f"{own_arch}.{key}": value
            for key, value in (changes or {}).items()
        }
        chosen = {name: array for name, array in (tensors_of(shape) | (tensors or {})).items() if array is not None}
        values = gguf_writer.metadata(shape) | TOKENIZER | own
        gguf_writer.write_file(tmp_path / "model.gguf", arch or own_arch, values, chosen, kind)
        return tmp_path / "model.gguf"

    return write


@pytest.mark.parametrize("cache", ["cache", "off"])
def test_a_file_becomes_a_folder_once(write, tmp_path, monkeypatch, cache):
    """The folder has the model of the file; a damaged draft of a killed process is replaced."""
    monkeypatch.setenv("KNNPROMPT_CACHE", cache if cache == "off" else str(tmp_path / cache))
    file = write(kind="F16")
    folder = hub.resolve(str(file))
    assert sorted(path.name for path in folder.iterdir()) == [
        *("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    ]
    assert hub.resolve(str(file)) == folder and len(list(folder.parent.iterdir())) == 1
    ours = torch_models.load(folder)
    want_BTV = torch_models.log_probabilities(make("llama"), tokens_BT := np.arange(21).reshape(3, 7))
    assert np.abs(jax.nn.log_softmax(ours.head.logits(ours(jnp.asarray(tokens_BT)))) - want_BTV).max() < 1e-4
    assert tokenizers.load(folder)("aba")["input_ids"] == [2, 0]
    fingerprint = registry.fingerprint(folder)
    written = (folder / "model.safetensors").read_bytes()
    draft = folder.with_name(f".{folder.name}.writing")
    folder.rename(draft)
    (draft / "model.safetensors").write_bytes(written[:100])
    assert hub.resolve(str(file)) == folder and not draft.exists()
    assert registry.fingerprint(folder) == fingerprint
    write(changes={"rope.freq_base": 25.0})
    assert registry.fingerprint(hub.resolve(str(file))) != fingerprint


def test_a_file_that_cannot_be_converted_leaves_nothing(write, tmp_path, monkeypatch):
    monkeypatch.setenv("KNNPROMPT_CACHE", str(tmp_path / "cache"))
    with pytest.raises(errors.UserError, match="tokenizer.ggml.pre='x'"):
        hub.resolve(str(write(changes={"split.count": 1, "tokenizer.ggml.pre": "x"})))
    assert not list((tmp_path / "cache" / "converted").iterdir())


def fails(file):
    with pytest.raises(errors.UserError) as failure:
        hub.resolve(str(file))
    assert str(file) in str(failure.value)
    return str(failure.value)


def test_other_and_truncated_files(write, tmp_path):
    file = tmp_path / "other.gguf"
    whole = write().read_bytes()
    assert hub.resolve(str(tmp_path / "model.gguf"))
    for content in (b"", b"PK\x03\x04" + bytes(100), b"GGUF" + struct.pack("<I", 77) + whole[8:]):
        file.write_bytes(content)
        assert DAMAGED in fails(file)
    tensors = gguf_model.read(tmp_path / "model.gguf").tensors.values()
    start = min(tensor.data_offset for tensor in tensors)
    end = max(tensor.data_offset + tensor.n_bytes for tensor in tensors)
    for size in sorted({*range(0, start, 1297), start, end - 1}):
        file.write_bytes(whole[:size])
        assert DAMAGED in fails(file)


LINEAR = {"rope.scaling.type": "linear", "rope.scaling.factor": 2.0}


@pytest.mark.parametrize(
    ("shape", "changes", "message"),
    [
        ("llama", {"context_length": None}, "llama.context_length=None: it is missing"),
        ("llama", {"attention.head_count": 5}, DAMAGED),
        ("llama-3.1", LINEAR, "linear, though the file has rope_freqs.weight too"),
        ("llama", {"expert_count": 8, "x": ["y"]}, "llama.expert_count=8, llama.x=['y']: not supported"),
        ("llama", {"split.count": 3}, "one of 3 parts; join them with `llama-gguf-split --merge` first"),
        ("gemma3", {"block_count": 32}, "only known for models with 18, 26, 34, 48, 62 layers"),
    ],
)
def test_unsupported_metadata(write, shape, changes, message):
    assert message in fails(write(shape, changes))
