"""Damaged and unsupported GGUF files are refused in one line, quickly and without large allocations."""

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
    for place in range(0, start, 97):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place // 97 % 8)
        file.write_bytes(damaged)
        try:
            use(file)
        except errors.UserError as error:
            assert "\n" not in str(error)
            refused += 1
    assert refused > 20


@pytest.mark.parametrize("count", [2**63 + 1, 2**64 - 1, 2**40, 2**32])
def test_huge_counts_cost_nothing(write, count):
    file = write()
    whole = file.read_bytes()

    def after(text: bytes, more: int) -> int:
        return whole.index(text) + len(text) + more

    places = {"tensors": 8, "metadata": 16, "a key's length": 24, "numbers": after(b"tokenizer.ggml.token_type", 8)}
    places |= {"a text's length": after(b"general.architecture", 4), "an array's": after(b"tokenizer.ggml.tokens", 8)}
    places |= {"a name's length": after(b"output_norm.weight", -26), "a tensor's size": after(b"output_norm.weight", 4)}
    for what, place in (places | {"a tensor's place": after(b"output_norm.weight", 16)}).items():
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
        ({"llama.block_count": 2}, "llama.block_count: 2 layers, but the tensors belong to 3"),
        ({"llama.embedding_length": 64}, "llama.embedding_length: 64, and token_embd has [96]"),
        ({"llama.attention.layer_norm_rms_epsilon": -1.0}, "epsilon=-1.0 is not a positive number"),
        ({"llama.attention.head_count": 0}, "llama.attention.head_count=0 is not a positive whole number"),
        ({"llama.attention.head_count": [6, 6, 6]}, "head_count=[6, 6, 6] is not a positive whole number"),
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


def test_empty_metadata_are_ignored(write):
    empty = {f"llama.empty{number}": value for number, value in enumerate((0, False, "", 0.0))}
    assert use(write(empty | {"general.other": 7, "quantize.imatrix.file": "x"}))


def test_architecture(write):
    choices = "gemma2, gemma3, gpt2, gptneox, llama, olmo2, phi3, qwen2, qwen3, smollm3"
    assert fails(write(arch="mamba")) == f"general.architecture='mamba' is not supported; choices: {choices}"


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


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (4, "tensor output_norm.weight has the unknown quantisation type number 4"),
        (24, "tensor output_norm.weight has type I8, which is not supported; choices: F32, F16, BF16, F64, Q4_0"),
        (12, "tensor output_norm.weight has shape [96], which Q4_K cannot have"),
    ],
)
def test_quantisation(write, number, message):
    file = write()
    whole, name = bytearray(file.read_bytes()), b"output_norm.weight"
    struct.pack_into(
        "<I", whole, whole.index(name) + len(name) + 4 + 8, number
    )  # After the number of dimensions, one size.
    file.write_bytes(whole)
    assert message in fails(file)


FAMILIES = [
    ("gemma3", {"attention.sliding_window": None}, "gemma3.attention.sliding_window is missing"),
    ("gemma3", {"attention.sliding_window_pattern": 4}, "pattern: only one full layer in 6 is supported"),
    ("phi3", {"attention.sliding_window": None}, "missing: convert the model again with a newer llama.cpp"),
    ("phi3", {"rope.scaling.type": "yarn"}, "'yarn' is not supported; choices: longrope, none"),
    ("olmo2", {"attention.sliding_window": 7}, "an OLMo 3; of this architecture only OLMo 2 is supported"),
    ("qwen2", {"attention.key_length": 32}, "key_length: only the width divided by the heads is supported"),
    ("qwen2", {"rope.scaling.yarn_ext_factor": 0.5}, "yarn_ext_factor: only 1 is supported"),
]


def test_families(tmp_path):
    file = tmp_path / "m.gguf"
    arrays = {shape: gguf_writer.tensors(shape, gguf_writer.make(shape)) for shape, *_ in FAMILIES}
    for shape, changes, message in FAMILIES:
        values = gguf_writer.metadata(shape) | {f"{shape}.{key}": value for key, value in changes.items()}
        gguf_writer.write_file(file, shape, values, arrays[shape])
        assert message in fails(file, gguf_config.config_json)
    pattern = {"gemma3.attention.sliding_window_pattern": [(layer + 1) % 6 != 0 for layer in range(62)]}
    gguf_writer.write_file(file, "gemma3", gguf_writer.metadata("gemma3") | pattern, arrays["gemma3"])
    kinds = gguf_config.config_json(file)["layer_types"]
    assert [layer for layer, kind in enumerate(kinds) if kind == "full_attention"] == list(range(5, 62, 6))
    few = {name: array for name, array in arrays["gemma3"].items() if not name.startswith("blk.")}
    few |= {f"blk.{layer}.attn_norm.weight": np.ones(96, np.float32) for layer in range(32)}
    gguf_writer.write_file(file, "gemma3", gguf_writer.metadata("gemma3") | {"gemma3.block_count": 32}, few)
    assert "the query scale is only known for models with 18, 26, 34, 48, 62 layers" in fails(file)
    unusual = gguf_writer.metadata("phi3") | {"phi3.rope.scaling.attn_factor": 1.5}
    gguf_writer.write_file(file, "phi3", unusual, arrays["phi3"])
    assert gguf_config.config_json(file)["rope_scaling"]["attention_factor"] == 1.5
    del arrays["phi3"]["rope_factors_short.weight"]
    gguf_writer.write_file(file, "phi3", gguf_writer.metadata("phi3"), arrays["phi3"])
    assert "rope_factors_short and rope_factors_long are both needed" in fails(file)


def test_a_changed_file_is_read_again(write):
    assert gguf_config.config_json(write())["rope_theta"] == 5e5
    assert gguf_config.config_json(write({"llama.rope.freq_base": 25.0, "general.more": "x"}))["rope_theta"] == 25.0
