"""GGUF files give the tensors and config of the `transformers` models that they were made from.

Damaged and unsupported files are refused in one line, quickly and without large allocations.
"""

import functools
import struct
import tracemalloc

import gguf
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the models to be read are made with PyTorch")
import transformers  # noqa: E402

from knnprompt_jax import errors  # noqa: E402
from knnprompt_jax.models import registry  # noqa: E402
from knnprompt_jax.models.gguf import config as gguf_config  # noqa: E402
from knnprompt_jax.models.gguf import header as gguf_header  # noqa: E402
from knnprompt_jax.models.gguf import tensors as gguf_tensors  # noqa: E402
from knnprompt_jax.models.gguf import tokenizer as gguf_tokenizer  # noqa: E402
from knnprompt_jax.models.weights import checkpoints  # noqa: E402
from tests.models.gguf import gguf_writer  # noqa: E402

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
    assert different <= IGNORED


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


TOKENIZER = {"model": "gpt2", "pre": "gpt-2", "tokens": ["a", "b", "ab"], "token_type": [1] * 3, "merges": ["a b"]}
TOKENIZER = {f"tokenizer.ggml.{key}": value for key, value in TOKENIZER.items()}
DAMAGED = "no readable GGUF file, perhaps truncated: "


def use(file):
    """Read everything in a file."""
    gguf_config.config_json(file)
    gguf_tokenizer.load(file)
    for tensor in gguf_tensors.read_tensors(file, []):
        tensor.view()
    return True


def fails(file, function=use):
    with pytest.raises(errors.UserError) as failure:
        function(file)
    assert str(failure.value).startswith(str(file))
    return str(failure.value).removeprefix(f"{file}: ")


@functools.cache
def tensors_of(shape):
    return gguf_writer.tensors(shape, make(shape))


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a model with changed metadata and tensors; None removes one."""

    def write(shape="llama", changes=None, tensors=None, arch=None):
        own_arch = gguf_writer.arch_of(shape)
        own = {key if "split" in key else f"{own_arch}.{key}": value for key, value in (changes or {}).items()}
        chosen = {name: array for name, array in (tensors_of(shape) | (tensors or {})).items() if array is not None}
        values = gguf_writer.metadata(shape) | TOKENIZER | own
        gguf_writer.write_file(tmp_path / "model.gguf", arch or own_arch, values, chosen)
        gguf_header._read.cache_clear()  # Two files may be written within one tick of the clock.
        return tmp_path / "model.gguf"

    return write


def rewrite(file, content):
    gguf_header._read.cache_clear()
    file.write_bytes(content)


def test_no_file_and_no_gguf(tmp_path, write):
    file = tmp_path / "other.gguf"
    assert "No such file" in fails(file)
    assert "Is a directory" in fails(tmp_path)
    whole = write().read_bytes()
    for content in (b"", b"PK\x03\x04" + bytes(100)):
        rewrite(file, content)
        assert fails(file).startswith(DAMAGED)
    for version, reason in ((1, "version 1"), (77, "version 77"), (3 << 24, "big-endian")):
        rewrite(file, b"GGUF" + struct.pack("<I", version) + whole[8:])
        assert fails(file).startswith(DAMAGED) and reason in fails(file)
    rewrite(file, b"GGUF" + struct.pack("<I", 2) + whole[8:])
    assert use(file)


def test_truncated_anywhere(write):
    file = write()
    whole, tensors = file.read_bytes(), gguf_header.read(file).tensors.values()
    start = min(tensor.data_offset for tensor in tensors)
    end = max(tensor.data_offset + tensor.n_bytes for tensor in tensors)
    for size in sorted({*range(120), *range(120, start, 97), start, *range(start, end, 9973), end - 1}):
        rewrite(file, whole[:size])
        assert fails(file).startswith(DAMAGED)
    rewrite(file, whole[:end])
    assert use(file)


def test_flipped_bits_in_the_header(write):
    """Each is harmless or refused: no other exception, no endless loop."""
    file = write()
    whole, refused = file.read_bytes(), 0
    start = min(tensor.data_offset for tensor in gguf_header.read(file).tensors.values())
    for place in range(0, start, 19):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place // 19 % 8)
        rewrite(file, damaged)
        try:
            use(file)
        except errors.UserError:
            refused += 1
    assert refused > 20


@pytest.mark.parametrize("count", [2**64 - 32, 2**40])
def test_huge_counts_cost_nothing(write, count):
    file = write()
    whole = file.read_bytes()
    names = b"general.architecture", b"output_norm.weight", b"tokenizer.ggml.token_type", b"tokenizer.ggml.tokens"
    text, norm, types, tokens = (whole.index(name) + len(name) for name in names)
    places = {"tensors": 8, "metadata": 16, "a key's length": 24, "a text's length": text + 4, "numbers": types + 8}
    places |= {"texts": tokens + 8, "a name's length": norm - 26, "a tensor's size": norm + 4, "its place": norm + 16}
    for what, place in places.items():
        rewrite(file, whole[:place] + struct.pack("<Q", count) + whole[place + 8 :])
        tracemalloc.start()
        assert fails(file).startswith(DAMAGED), what
        assert tracemalloc.get_traced_memory()[1] < 2**20, what
        tracemalloc.stop()


def announced(tensors, metadata=0, rest=bytes(76)):
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, metadata) + rest


@pytest.mark.parametrize("count", [5, 2**32, 2**63, 2**64 - 1])
def test_counts_are_bounded_by_the_length_of_the_file(tmp_path, count):
    file = tmp_path / "short.gguf"
    rewrite(file, announced(count))
    assert fails(file) == f"{DAMAGED}it announces {count} tensors, but has 100 bytes"
    metadata = max(count, 7)
    rewrite(file, announced(0, metadata))
    assert fails(file) == f"{DAMAGED}it announces {metadata} metadata, but has 100 bytes"
    key = b"tokenizer.ggml.tokens"
    array = struct.pack("<Q", len(key)) + key + struct.pack("<IIQ", 9, 8, count)
    rewrite(file, announced(0, 1, array))
    assert fails(file).startswith(f"{DAMAGED}it announces {count} texts, but has ")


def test_many_empty_tokens_cost_little(write, monkeypatch):
    """They fit into the file."""
    monkeypatch.setitem(TOKENIZER, "tokenizer.ggml.tokens", None)
    file = write()
    whole = file.read_bytes()
    key = b"tokenizer.ggml.tokens"
    count = 200_000
    tokens = struct.pack("<Q", len(key)) + key + struct.pack("<IIQ", 9, 8, count) + bytes(8 * count)
    metadata = struct.unpack_from("<Q", whole, 16)[0]
    rewrite(file, whole[:16] + struct.pack("<Q", metadata + 1) + tokens + whole[24:])
    tracemalloc.start()
    with pytest.raises(errors.UserError, match=f"token_type: 3 numbers for {count} tokens"):
        gguf_tokenizer.load(file)
    assert tracemalloc.get_traced_memory()[1] < 40 * count
    tracemalloc.stop()


@pytest.mark.parametrize("axes", [0, 5])
@pytest.mark.parametrize("name", [b"output_norm.weight", b"token_embd.weight", b"blk.0.attn_q.weight"])
def test_a_tensor_without_dimensions_or_with_many(write, name, axes):
    file = write()
    whole = bytearray(file.read_bytes())
    place = whole.index(name) + len(name)
    (given,) = struct.unpack_from("<I", whole, place)
    sizes = whole[place + 4 : place + 4 + 8 * given]
    grown = sizes + b"".join([struct.pack("<Q", 1)] * (axes - given)) if axes else b""
    rewrite(file, bytes(whole[:place]) + struct.pack("<I", axes) + bytes(grown) + bytes(whole[place + 4 + 8 * given :]))
    assert fails(file).startswith(f"{DAMAGED}tensor {name.decode()} has the shape [")


def test_missing_and_unknown_tensors_have_the_names_of_the_file(write):
    config = registry.config_from_hf(gguf_config.config_json(write()))
    damaged = write(
        tensors={"output_norm.weight": None, "blk.1.attn_q.weight": None, "surplus": np.ones(3, np.float32)}
    )
    with pytest.raises(errors.UserError) as caught:
        checkpoints.load(damaged, config, np.dtype(np.float32))
    assert str(caught.value).endswith(
        "the weights do not fit its metadata: 1 unknown (surplus); 2 missing (output_norm.weight, blk.1.attn_q.weight)"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"token_type": [1, 1]}, "tokenizer.ggml.token_type: 2 numbers for 3 tokens"),
        ({"token_type": 1}, "tokenizer.ggml.token_type: 1 numbers for 3 tokens"),
        ({"tokens": [1, 2, 3]}, "tokenizer.ggml.tokens: no list of texts"),
        ({"merges": [7]}, "tokenizer.ggml.merges: no list of texts"),
    ],
)
def test_lists_of_the_tokenizer_that_do_not_match(write, monkeypatch, changes, message):
    for key, value in changes.items():
        monkeypatch.setitem(TOKENIZER, f"tokenizer.ggml.{key}", value)
    assert message in fails(write(), gguf_tokenizer.load)


LINEAR = {"rope.scaling.type": "linear", "rope.scaling.factor": 2.0}


@pytest.mark.parametrize(
    ("shape", "changes", "message"),
    [
        ("llama", {"context_length": None}, "llama.context_length is missing"),
        ("llama", {"attention.causal": False}, "llama.attention.causal=False is not supported"),
        ("llama", {"block_count": 2**31 - 1}, "llama.block_count=2147483647 is too large"),
        ("llama", {"block_count": 2}, "llama.block_count: 2 layers, but the tensors belong to 3"),
        ("llama", {"embedding_length": 64}, "llama.embedding_length: 64, and token_embd has [96]"),
        ("llama", {"attention.head_count": [6, 6]}, "head_count=[6, 6] is not a positive whole number"),
        ("llama", {"rope.dimension_count": 8}, "rope.dimension_count=8 is not supported; only "),
        ("llama", {"rope.scaling.type": "yarn"}, "'yarn' is not supported; choices: linear, none"),
        ("llama-3.1", LINEAR, "rope.scaling.type: linear, though the file has rope_freqs too"),
        ("llama", {"expert_count": 8, "x": ["y"]}, "llama.expert_count=8, llama.x=['y']: not supported"),
        ("llama", {"split.count": 3}, "one of 3 parts; join them with `llama-gguf-split --merge` first"),
        ("gemma3", {"attention.sliding_window_pattern": 4}, "pattern: only one full layer in 6 is supported"),
        ("gemma3", {"final_logit_softcapping": 30.0}, "gemma3.final_logit_softcapping=30.0: not supported"),
        ("qwen2", {"rope.scaling.yarn_ext_factor": 0.5}, "qwen2.rope.scaling.yarn_ext_factor=0.5: not supported"),
    ],
)
def test_unsupported_metadata(write, shape, changes, message):
    assert message in fails(write(shape, changes), gguf_config.config_json)


def test_unsupported_models_and_tensors(write):
    choices = "gemma3, llama, qwen2, qwen3"
    for arch in ("mamba", "gemma2", "gpt2"):
        assert fails(write(arch=arch)) == f"general.architecture={arch!r} is not supported; choices: {choices}"
    assert fails(write(tensors={"token_embd.weight": None})) == "no tensor token_embd.weight"
    heads = write(changes={"attention.head_count": 5})
    message = fails(heads, lambda file: list(gguf_tensors.read_tensors(file, [])))
    assert "5 heads do not divide blk.0.attn_q.weight of shape [96, 96]" in message
    factors = {"rope_freqs.weight": np.array([1, -2], np.float32)}
    assert fails(write(tensors=factors)) == "rope_freqs.weight holds numbers that are not positive"
    few = {name: None for name in tensors_of("gemma3") if name.startswith("blk.") and int(name.split(".")[1]) >= 32}
    assert "only known for models with 18, 26, 34, 48, 62 layers" in fails(write("gemma3", {"block_count": 32}, few))


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (4, "(4) is not a valid GGMLQuantizationType"),
        (24, "tensor output_norm.weight: Dequantization for I8 is not yet implemented"),
        (12, "row size (96) is not a multiple of Q4_K block size (256)"),
    ],
)
def test_quantisation(write, number, message):
    file, name = write(), b"output_norm.weight"
    whole = bytearray(file.read_bytes())
    # After the number of dimensions, one size.
    struct.pack_into("<I", whole, whole.index(name) + len(name) + 4 + 8, number)
    rewrite(file, whole)
    assert message in fails(file)


def test_a_changed_file_is_read_again(write, tmp_path):
    assert gguf_config.config_json(write())["rope_theta"] == 5e5
    values = gguf_writer.metadata("llama") | {"llama.rope.freq_base": 25.0, "general.more": "x"}
    gguf_writer.write_file(tmp_path / "model.gguf", "llama", values, tensors_of("llama"))
    assert gguf_config.config_json(tmp_path / "model.gguf")["rope_theta"] == 25.0
