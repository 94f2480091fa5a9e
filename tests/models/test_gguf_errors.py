"""Damaged and unsupported GGUF files are refused in one line, quickly and without large allocations."""

import pathlib
import struct
import tracemalloc

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the models to be damaged are made with PyTorch")

from knnprompt_jax import errors  # noqa: E402
from knnprompt_jax.models.gguf import config as gguf_config  # noqa: E402
from knnprompt_jax.models.gguf import header as gguf_header  # noqa: E402
from knnprompt_jax.models.gguf import tensors as gguf_tensors  # noqa: E402
from knnprompt_jax.models.gguf import tokenizer as gguf_tokenizer  # noqa: E402
from tests.models import gguf_tokenizers, gguf_writer  # noqa: E402

TOKENIZER = {f"tokenizer.ggml.{key}": value for key, value in gguf_tokenizers.byte_level("smollm", 290).values.items()}


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
    message = str(failure.value)
    assert "\n" not in message and message.startswith(str(file))
    return message.removeprefix(f"{file}: ")


@pytest.fixture(scope="module")
def arrays():
    return gguf_writer.tensors("llama", gguf_writer.make("llama"))


@pytest.fixture
def write(tmp_path, arrays):
    """Return a function that writes a Llama with changed metadata and tensors; None removes one."""

    def write(changes=None, tensors=None, arch="llama", kind="F32"):
        values = gguf_writer.metadata("llama") | TOKENIZER | (changes or {})
        if arch != "llama":
            values = {key.replace("llama.", f"{arch}.", 1): value for key, value in values.items()}
        chosen = {name: array for name, array in (arrays | (tensors or {})).items() if array is not None}
        gguf_writer.write_file(tmp_path / "model.gguf", arch, values, chosen, kind)
        return tmp_path / "model.gguf"

    return write


def test_the_undamaged_file_can_be_used(write):
    assert use(write())


def test_no_file_and_no_gguf(tmp_path, write):
    file = tmp_path / "other.gguf"
    assert "No such file" in fails(file)
    assert "Is a directory" in fails(tmp_path)
    file.write_bytes(b"")
    assert fails(file) == "truncated or corrupt: it is empty"
    file.write_bytes(b"PK\x03\x04" + bytes(100))
    assert fails(file) == "no GGUF file: it begins with b'PK\\x03\\x04', not b'GGUF'"
    whole = write().read_bytes()
    for version, said in ((1, "of GGUF version 1"), (77, "of GGUF version 77"), (3 << 24, "big-endian, which is not")):
        file.write_bytes(b"GGUF" + struct.pack("<I", version) + whole[8:])
        assert fails(file).startswith(said) and fails(file).endswith("supported: little-endian, version 2 or 3")
    file.write_bytes(b"GGUF" + struct.pack("<I", 2) + whole[8:])
    assert use(file)


def test_truncated_anywhere(write):
    file = write()
    whole = file.read_bytes()
    entries = gguf_header.read(file).tensors.values()
    start, end = (
        pick(entry.offset + entry.num_bytes * last for entry in entries) for pick, last in ((min, 0), (max, 1))
    )
    for size in sorted({*range(120), *range(120, start, 97), start, *range(start, end, 9973), end - 1}):
        file.write_bytes(whole[:size])
        assert fails(file)
    file.write_bytes(whole[:end])
    assert use(file)


def test_flipped_bits_in_the_header(write):
    """Each is harmless or refused: no other exception, no endless loop."""
    file = write()
    whole = bytearray(file.read_bytes())
    start = min(entry.offset for entry in gguf_header.read(file).tensors.values())
    refused = 0
    for place in range(0, start, 31):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place // 31 % 8)
        file.write_bytes(damaged)
        try:
            use(file)
        except errors.UserError as error:
            assert "\n" not in str(error)
            refused += 1
    assert refused > 80


def _counts(file: pathlib.Path) -> dict[str, int]:
    """Return the offsets of counts and lengths in the header."""
    whole = file.read_bytes()

    def after(text: bytes, more: int) -> int:
        return whole.index(text) + len(text) + more

    return {
        "tensors": 8,
        "metadata": 16,
        "a key's length": 24,
        "a text's length": after(b"general.architecture", 4),
        "an array's length": after(b"tokenizer.ggml.tokens", 8),
        "numbers": after(b"tokenizer.ggml.token_type", 8),
        "a name's length": whole.index(b"output_norm.weight") - 8,
        "a tensor's size": after(b"output_norm.weight", 4),
        "a tensor's place": after(b"output_norm.weight", 16),
    }


@pytest.mark.parametrize("count", [2**63 + 1, 2**64 - 1, 2**40, 2**32])
def test_huge_counts_cost_nothing(write, count):
    file = write()
    whole = file.read_bytes()
    for what, place in _counts(file).items():
        file.write_bytes(whole[:place] + struct.pack("<Q", count) + whole[place + 8 :])
        tracemalloc.start()
        assert "truncated or corrupt" in fails(file), what
        assert tracemalloc.get_traced_memory()[1] < 2**20, what
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"llama.context_length": None}, "llama.context_length is missing"),
        ({"llama.block_count": 2**32 - 1}, "llama.block_count=4294967295 is no size of a model"),
        ({"llama.embedding_length": 2**32 - 1}, "llama.embedding_length=4294967295 is no size of a model"),
        ({"llama.block_count": None}, "llama.block_count is missing"),
        ({"llama.block_count": 2}, "llama.block_count: 2 layers, but the tensors belong to 3"),
        ({"llama.embedding_length": 64}, "llama.embedding_length: 64, and token_embd has [96]"),
        ({"llama.attention.layer_norm_rms_epsilon": -1.0}, "epsilon=-1.0 is not a positive number"),
        ({"llama.attention.layer_norm_rms_epsilon": float("nan")}, "epsilon=nan is not a positive number"),
        ({"llama.attention.head_count": 0}, "llama.attention.head_count=0 is not a positive whole number"),
        ({"llama.attention.head_count": [6, 6, 6]}, "head_count=[6, 6, 6] is not a positive whole number"),
        ({"llama.attention.head_count": 6.0}, "llama.attention.head_count=6.0 is not a positive whole number"),
        ({"llama.attention.value_length": 8}, "llama.attention.value_length: only that of the keys, 16, is supported"),
        ({"llama.attention.causal": False}, "llama.attention.causal: only causal attention is supported"),
        ({"llama.rope.dimension_count": 8}, "llama.rope.dimension_count: only the head's 16 values are supported"),
        ({"llama.rope.dimension_count": 32}, "llama.rope.dimension_count: 32 values of a head of 16"),
        ({"llama.rope.scaling.type": "su"}, "'su' is not supported; choices: linear, longrope, none, yarn"),
        ({"llama.rope.scaling.type": "longrope"}, "longrope is supported for the architecture phi3 alone"),
        ({"llama.expert_count": 8}, "llama.expert_count=8: not supported"),
        ({"llama.logit_scale": 0.5, "llama.x": "y"}, "llama.logit_scale=0.5, llama.x='y': not supported"),
        ({"llama.names": ["a", "b"], "llama.scales": [0.0, 1.0]}, "llama.names=['a', 'b'], llama.scales=[0.0, 1.0]"),
        ({"split.count": 3}, "one of 3 parts; join them with `llama-gguf-split --merge` first"),
        ({"general.alignment": 24}, "truncated or corrupt: general.alignment=24 is no power of two"),
    ],
)
def test_unsupported_metadata(write, changes, message):
    assert message in fails(write(changes), gguf_config.config_json)


@pytest.mark.parametrize("value", [0, False, "", 0.0])
def test_empty_metadata_are_ignored(write, value):
    assert use(write({"llama.expert_count": value, "general.other": 7, "quantize.imatrix.file": "x"}))


def test_architecture(write):
    choices = "gemma2, gemma3, gpt2, gptneox, llama, olmo2, phi3, qwen2, qwen3, smollm3"
    want = f"general.architecture='mamba' is not supported; choices: {choices}"
    assert (
        fails(write(arch="mamba"))
        == fails(write(arch="mamba"), lambda file: list(gguf_tensors.read_tensors(file, [])))
        == want
    )


def test_unsupported_tensors(write, tmp_path):
    assert fails(write(tensors={"token_embd.weight": None})) == "no tensor token_embd.weight"
    heads = lambda file: list(gguf_tensors.read_tensors(file, []))  # noqa: E731
    assert "5 heads do not divide blk.0.attn_q.weight of shape [96, 96]" in fails(
        write({"llama.attention.head_count": 5}), heads
    )
    factors = {"rope_freqs.weight": np.array([1, -2], np.float32)}
    assert fails(write(tensors=factors)) == "rope_freqs.weight holds numbers that are not positive"
    both = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}
    factors = {"rope_freqs.weight": np.ones(8, np.float32)}
    assert "llama.rope.scaling.type: linear, though the file has rope_freqs too" in fails(write(both, factors))


def _retype(file: pathlib.Path, name: bytes, number: int) -> None:
    whole = bytearray(file.read_bytes())
    place = whole.index(name) + len(name)
    dimensions = struct.unpack_from("<I", whole, place)[0]
    struct.pack_into("<I", whole, place + 4 + 8 * dimensions, number)
    file.write_bytes(whole)


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (4, "tensor output_norm.weight has the unknown quantisation type number 4"),
        (999, "tensor output_norm.weight has the unknown quantisation type number 999"),
        (24, "tensor output_norm.weight has type I8, which is not supported; choices: F32, F16, BF16, F64, Q4_0"),
        (9, "tensor output_norm.weight has type Q8_1, which is not supported"),
        (12, "tensor output_norm.weight has shape [96], which Q4_K cannot have"),
    ],
)
def test_quantisation(write, number, message):
    file = write()
    _retype(file, b"output_norm.weight", number)
    assert message in fails(file)


@pytest.mark.parametrize(
    ("shape", "layers", "known"), [("gemma2", 3, "26, 42, 46 layers"), ("gemma3", 32, "18, 26, 34, 48, 62 layers")]
)
def test_unknown_query_scales(tmp_path, shape, layers, known):
    arch, arrays = gguf_writer.arch_of(shape), gguf_writer.tensors(shape, gguf_writer.make(shape))
    arrays = {
        name: array for name, array in arrays.items() if not name.startswith("blk.") or int(name.split(".")[1]) < layers
    }
    arrays |= {f"blk.{layer}.attn_norm.weight": np.ones(96, np.float32) for layer in range(layers)}
    values = gguf_writer.metadata(shape) | {f"{arch}.block_count": layers}
    gguf_writer.write_file(tmp_path / "m.gguf", arch, values, arrays)
    assert f"the query scale is only known for models with {known}" in fails(tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("shape", "changes", "message"),
    [
        ("gemma3", {"attention.sliding_window": None}, "gemma3.attention.sliding_window is missing"),
        ("gemma3", {"attention.sliding_window_pattern": 4}, "pattern: only one full layer in 6 is supported"),
        ("phi3", {"attention.sliding_window": None}, "missing: convert the model again with a newer llama.cpp"),
        ("phi3", {"rope.scaling.type": "yarn"}, "'yarn' is not supported; choices: longrope, none"),
        ("olmo2", {"attention.sliding_window": 7}, "an OLMo 3; of this architecture only OLMo 2 is supported"),
        ("qwen2", {"attention.key_length": 32}, "key_length: only the width divided by the heads is supported"),
        ("qwen2", {"rope.scaling.yarn_ext_factor": 0.5}, "yarn_ext_factor: only 1 is supported"),
    ],
)
def test_families(tmp_path, shape, changes, message):
    arch = gguf_writer.arch_of(shape)
    values = gguf_writer.metadata(shape) | {f"{arch}.{key}": value for key, value in changes.items()}
    gguf_writer.write_file(tmp_path / "m.gguf", arch, values, gguf_writer.tensors(shape, gguf_writer.make(shape)))
    assert message in fails(tmp_path / "m.gguf", gguf_config.config_json)


@pytest.mark.parametrize("which", ["short", "long"])
def test_half_a_longrope(tmp_path, which):
    arrays = gguf_writer.tensors("phi3", gguf_writer.make("phi3"))
    del arrays[f"rope_factors_{which}.weight"]
    gguf_writer.write_file(tmp_path / "m.gguf", "phi3", gguf_writer.metadata("phi3"), arrays)
    assert "rope_factors_short and rope_factors_long are both needed" in fails(tmp_path / "m.gguf")


def test_an_unusual_attention_factor_is_kept(tmp_path):
    arrays = gguf_writer.tensors("phi3", gguf_writer.make("phi3"))
    values = gguf_writer.metadata("phi3") | {"phi3.rope.scaling.attn_factor": 1.5}
    gguf_writer.write_file(tmp_path / "m.gguf", "phi3", values, arrays)
    assert gguf_config.config_json(tmp_path / "m.gguf")["rope_scaling"]["attention_factor"] == 1.5


def test_known_sliding_window_patterns(tmp_path):
    shape = "gemma3"
    arrays = gguf_writer.tensors(shape, gguf_writer.make(shape))
    for pattern in (6, [(layer + 1) % 6 != 0 for layer in range(62)]):
        values = gguf_writer.metadata(shape) | {"gemma3.attention.sliding_window_pattern": pattern}
        gguf_writer.write_file(tmp_path / "m.gguf", shape, values, arrays)
        kinds = gguf_config.config_json(tmp_path / "m.gguf")["layer_types"]
        assert [layer for layer, kind in enumerate(kinds) if kind == "full_attention"] == list(range(5, 62, 6))


def test_a_changed_file_is_read_again(write):
    assert gguf_config.config_json(write())["rope_theta"] == 5e5
    assert gguf_config.config_json(write({"llama.rope.freq_base": 25.0, "general.more": "x"}))["rope_theta"] == 25.0
