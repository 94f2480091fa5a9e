"""The tensors and config of GGUF files equal those of the `transformers` models that they were made from."""

import functools

import gguf
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the models to be read are made with PyTorch")
import transformers  # noqa: E402

from knnprompt_jax.models.gguf import config as gguf_config  # noqa: E402
from knnprompt_jax.models.gguf import header as gguf_header  # noqa: E402
from knnprompt_jax.models.gguf import tensors as gguf_tensors  # noqa: E402
from tests.models import gguf_writer  # noqa: E402

make = functools.cache(gguf_writer.make)
# Ids of tokens are the tokenizer's.
IGNORED = {"architectures", "dtype", "transformers_version", "bos_token_id", "eos_token_id", "pad_token_id"}


def read(file, shape):
    """Return all tensors by their name in `transformers`."""
    found = list(gguf_tensors.read_tensors(file, gguf_writer.make_state(make(shape))))
    assert len({tensor.key for tensor in found}) == len(found)
    return {tensor.key: tensor for tensor in found}


@pytest.mark.parametrize("shape", sorted(gguf_writer.CONFIGS))
def test_tensors_and_config_are_the_model(shape, tmp_path):
    gguf_writer.write(file := tmp_path / "model.gguf", shape, make(shape))
    want, found = gguf_writer.make_state(make(shape)), read(file, shape)
    assert set(found) == set(want)
    for name, tensor in found.items():
        view = tensor.view()
        assert (tensor.shape, tensor.dtype) == (view.shape, view.dtype) == (want[name].shape, np.float32)
        np.testing.assert_array_equal(view, want[name], err_msg=name)

    wanted, config = make(shape).config.to_dict(), gguf_config.config_json(file)
    if shape == "llama-3.1":
        plain = config["rope_theta"] ** (-np.arange(0, config["head_dim"], 2) / config["head_dim"])
        frequencies = make(shape).model.rotary_emb.inv_freq.numpy()
        np.testing.assert_allclose(plain / np.array(config["rope_factors"]), frequencies, rtol=1e-6)
        config["rope_scaling"], wanted["rope_factors"] = make(shape).config.rope_parameters, config["rope_factors"]
    got = transformers.AutoConfig.for_model(**config).to_dict()
    different = {key for key in got.keys() | wanted.keys() if got.get(key) != wanted.get(key)}
    # `to_dict` repeats Phi-3's factor, which the scaling contains too.
    assert different <= IGNORED | ({"partial_rotary_factor"} if shape == "phi3" else set())


@pytest.mark.parametrize(
    ("shape", "kind"),
    [("llama", "F16"), ("llama", "BF16"), ("llama", "Q5_1"), ("gptneox", "Q4_1"), ("gpt2", "Q8_0"), ("gpt2", "BF16")],
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
        assert tensor.view().dtype == tensor.dtype
        np.testing.assert_array_equal(tensor.view().astype(np.float32), want[name].view(), err_msg=name)
    assert any(gguf_writer.kind_of(array, kind).name == kind for array in rounded.values())


def test_plain_views_map_the_file_and_computed_ones_are_shared_until_release(tmp_path):
    gguf_writer.write(tmp_path / "m.gguf", "llama", make("llama"))
    tensors = read(tmp_path / "m.gguf", "llama")
    assert not tensors["model.embed_tokens.weight"].view().flags.owndata
    query = tensors["model.layers.1.self_attn.q_proj.weight"]
    first = query.view()
    assert query.view() is first and not first.flags.writeable
    gguf_tensors.release()
    assert query.view() is not first
    np.testing.assert_array_equal(query.view(), first)


def test_dequantised_tensors_are_cached_by_content(tmp_path, monkeypatch):
    file, weights = tmp_path / "a.gguf", tmp_path / "cache" / "weights"
    gguf_writer.write(file, "llama", make("llama"), "Q5_1")

    def same():
        gguf_tensors.release()
        found = read(file, "llama")
        return all(np.array_equal(found[name].view(), want[name]) for name in want)

    monkeypatch.setenv("KNNPROMPT_CACHE", "off")
    want = {name: tensor.view() for name, tensor in read(file, "llama").items()}
    monkeypatch.setenv("KNNPROMPT_CACHE", str(tmp_path / "cache"))
    assert same()
    (cached,) = weights.iterdir()
    file = file.rename(tmp_path / "b.gguf")
    with monkeypatch.context() as patched:
        patched.setattr(gguf_tensors, "_dequantise", None)
        assert same()
    cached.write_bytes(cached.read_bytes()[:-4])
    assert same() and not cached.exists(), "a damaged file is removed"
    assert same() and cached.exists()

    size = sum(4 * tensor.n_elements for tensor in gguf_header.read(file).tensors.values() if tensor.tensor_type > 1)
    monkeypatch.setattr(gguf_tensors, "_CACHED_BYTES", int(1.5 * size))
    gguf_writer.write(file, "llama", make("llama"), "Q4_1")
    gguf_tensors.release()
    read(file, "llama")["model.layers.0.mlp.up_proj.weight"].view()
    (other,) = weights.iterdir()
    assert other != cached, "the file used longest ago is removed"
    monkeypatch.setattr(gguf_tensors, "_CACHED_BYTES", size - 1)
    other.unlink()
    gguf_tensors.release()
    read(file, "llama")["model.layers.0.mlp.up_proj.weight"].view()
    assert not list(weights.iterdir()), "it would exceed the bound alone"
