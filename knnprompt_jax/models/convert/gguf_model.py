"""Read a GGUF file: its metadata as a config.json, its tensors under the names and in the layouts of Hugging Face.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3. The keys of config.json are those
of the config classes of `transformers`. Values that llama.cpp assumes and no file holds are constants here.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import gguf
import ml_dtypes
import numpy as np

from knnprompt_jax.common import errors
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import convert

Json = dict[str, Any]
# These values do not change the model's results.
_HARMLESS = ("vocab_size", "tensor_data_layout", "rope.scaling.finetuned", "rope.scaling.original_context_length")
_THETA = 10_000.0  # llama.cpp's default base of rotary frequencies.
_ROPE_TENSOR = "rope_freqs.weight"  # Factors of rotary frequencies, which are part of the config.
# The only full layer in this many; the others have a window.
_GEMMA3_PERIOD = 6
# Numbers of layers of the published Gemmas. GGUF files lack the query scale; it is known for these models only, from
# the head size (27B: from the width per head).
_GEMMA3_LAYERS = (18, 26, 34, 48, 62)
_STORED = {
    gguf.GGMLQuantizationType.F32: np.dtype(np.float32),
    gguf.GGMLQuantizationType.F16: np.dtype(np.float16),
    gguf.GGMLQuantizationType.BF16: np.dtype(ml_dtypes.bfloat16),
    gguf.GGMLQuantizationType.F64: np.dtype(np.float64),
}
# Weights of Hugging Face files, without `.weight` and `.bias`.
_OUTSIDE = ("model.embed_tokens", "model.norm", "lm_head")
_IN_BLOCKS = (
    *("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"),
    *(f"self_attn.{part}" for part in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")),
    *(f"mlp.{part}" for part in ("gate_proj", "up_proj", "down_proj")),
)


@dataclasses.dataclass(frozen=True, eq=False)
class Header:
    """The metadata (int, float, bool, str, lists of them) and tensors of a file."""

    file: pathlib.Path
    metadata: dict[str, Any]
    tensors: dict[str, gguf.ReaderTensor]

    def model_fields(self) -> "Fields":
        """Return the values under the architecture's prefix; raise UserError if the architecture is not supported."""
        return Fields(self, Fields(self, "general.").choice("architecture", None, _BUILDERS) + ".")

    def shape(self, name: str) -> tuple[int, ...]:
        """Return a tensor's shape in NumPy's order (longest stride first)."""
        return tuple(self.tensors[name].shape[::-1].tolist())

    def numbers(self, name: str) -> np.ndarray:
        """Return a tensor's numbers: mapped if they are stored as such, otherwise dequantised to float32."""
        tensor = self.tensors[name]
        if tensor.tensor_type in _STORED:
            return tensor.data.view(_STORED[tensor.tensor_type])
        with np.errstate(all="ignore"):  # Damaged scales: the loader checks that weights are finite.
            return gguf.quants.dequantize(tensor.data, tensor.tensor_type)


class Fields(config_lib.Fields):
    """The metadata of a file whose keys begin with `prefix`, by key without the prefix."""

    def __init__(self, header: Header, prefix: str):
        values = {key.removeprefix(prefix): value for key, value in header.metadata.items() if key.startswith(prefix)}
        super().__init__(values, str(header.file), prefix)
        self.header = header

    def _matters(self, key: str, value: Any) -> bool:
        """Return whether an unread value may change the model: not if it is 0, false or empty."""
        return key not in _HARMLESS and bool(any(value) if isinstance(value, list) else value)


class _Reader(gguf.GGUFReader):
    """`gguf`'s reader, which stops at the end of a truncated file."""

    def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> np.ndarray:
        array = super()._get(offset, dtype, count, override_order)
        if len(array) < count:
            raise ValueError(f"it ends before byte {offset}")
        return array


def read(file: pathlib.Path) -> Header:
    """Return the header of a file; raise UserError if it is one part of several, and other errors if it is damaged."""
    reader = _Reader(file)
    metadata = {name: _value(field) for name, field in reader.fields.items()}
    if (parts := metadata.get("split.count", 1)) not in (0, 1):
        raise errors.UserError(f"{file}: one of {parts} parts; join them with `llama-gguf-split --merge` first")
    return Header(file, metadata, {tensor.name: tensor for tensor in reader.tensors})


def config_json(header: Header) -> Json:
    """Return the config.json of a file, as `transformers` writes it, without the ids of special tokens.

    Raises:
        UserError: the file lacks metadata, has unsupported metadata, or does not determine its model.
    """
    fields = header.model_fields()
    config = _BUILDERS[fields.prefix.removesuffix(".")](fields)
    fields.refuse_unread()
    return config


def tensors(header: Header) -> Iterator[convert.Tensor]:
    """Yield all tensors; unknown tensors keep their name. llama.cpp's rearrangements are undone."""
    fields = header.model_fields()
    hf_names = _hf_names(fields)
    for name, tensor in header.tensors.items():
        if name != _ROPE_TENSOR:
            stem, dot, kind = name.rpartition(".")
            dtype = _STORED.get(tensor.tensor_type, np.dtype(np.float32))
            read = functools.partial(_read_restored, fields, name, dtype)
            yield convert.Tensor(hf_names.get(stem, stem) + dot + kind, header.shape(name), dtype, read)


def _read_restored(fields: Fields, name: str, dtype: np.dtype) -> np.ndarray:
    """Return a tensor's numbers in the order and scale of Hugging Face files."""
    array = fields.header.numbers(name)
    part = name.split(".", 2)[-1]
    if fields.prefix == "gemma3." and name.endswith("norm.weight"):
        array = array - np.float32(1)
    if fields.prefix == "llama." and part.startswith(("attn_q.", "attn_k.")):
        heads = fields.size("attention.head_count")
        if part.startswith("attn_k."):
            heads = fields.size("attention.head_count_kv", heads)
        # The order within each head is x0 y0 x1 y1 …, and becomes x0 x1 … y0 y1 ….
        array = array.reshape(heads, -1, 2, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)
    return array.astype(dtype, copy=False)


def _hf_names(fields: Fields) -> dict[str, str]:
    """Map the names of weights in GGUF files to those in Hugging Face files."""
    architecture = fields.prefix.removesuffix(".")
    number = next(number for number, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    layers = fields.size("block_count")
    known = gguf.get_tensor_name_map(number, layers)
    in_blocks = (f"model.layers.{layer}.{part}" for layer in range(layers) for part in _IN_BLOCKS)
    return {str(known.get_name(name)): name for name in (*_OUTSIDE, *in_blocks)}


def _value(field: gguf.ReaderField) -> Any:
    if field.types == [gguf.GGUFValueType.FLOAT32]:
        # The shortest decimal number that float32 rounds so: 1e-05, and not 9.999999747378752e-06.
        return float(str(field.parts[-1][0]))
    return field.contents()


def _sizes(fields: Fields) -> Json:
    """Return the keys that all architectures share. The embeddings' rows, padding included, are the vocabulary."""
    fields.require("attention.causal", True)
    heads = fields.size("attention.head_count")
    head = fields.size("attention.key_length", max(1, fields.size("embedding_length") // heads))
    fields.require("attention.value_length", head)
    fields.require("rope.dimension_count", head)
    header = fields.header
    return {
        "vocab_size": header.shape("token_embd.weight")[0],
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "hidden_size": fields.size("embedding_length"),
        "intermediate_size": fields.size("feed_forward_length"),
        "num_hidden_layers": fields.size("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": fields.size("attention.head_count_kv", heads),
        "head_dim": head,
        "max_position_embeddings": fields.size("context_length"),
        "rms_norm_eps": fields.number("attention.layer_norm_rms_epsilon"),
        "rope_theta": fields.number("rope.freq_base", _THETA),
        **_scaling(fields),
    }


def _scaling(fields: Fields) -> Json:
    """Return `rope_scaling`, or an empty dictionary. As in llama.cpp, scaling without a type is linear.

    Llama 3.1's files divide each frequency by a factor of its own. In config.json that is LongRoPE without a longer
    context.
    """
    kind = fields.choice("rope.scaling.type", "linear", ("none", "linear"))
    factor = fields.number("rope.scaling.factor") if fields.value("rope.scaling.factor") else 1.0
    is_scaled = kind == "linear" and factor != 1
    if _ROPE_TENSOR not in fields.header.tensors:
        return {"rope_scaling": {"rope_type": kind, "factor": factor}} if is_scaled else {}
    if is_scaled:
        raise fields.wrong("rope.scaling.type", f"{kind}, though the file has {_ROPE_TENSOR} too")
    factors = fields.header.numbers(_ROPE_TENSOR).astype(np.float32).reshape(-1).tolist()
    context = {"original_max_position_embeddings": fields.size("context_length"), "attention_factor": 1.0}
    return {"rope_scaling": {"rope_type": "longrope", "short_factor": factors, "long_factor": factors, **context}}


def _silu(fields: Fields, model_type: str, **constants: Any) -> Json:
    return {"model_type": model_type, "hidden_act": "silu", **_sizes(fields), **constants}


def _llama(fields: Fields) -> Json:
    """Llama, or Mistral, whose files have the same architecture and a window."""
    if fields.value("attention.sliding_window"):
        return _silu(fields, "mistral", sliding_window=fields.size("attention.sliding_window"))
    names = fields.header.tensors
    biases = {"attention_bias": "blk.0.attn_q.bias" in names, "mlp_bias": "blk.0.ffn_up.bias" in names}
    return _silu(fields, "llama", **biases)


def _qwen3(fields: Fields) -> Json:
    has_bias = "blk.0.attn_q.bias" in fields.header.tensors
    return _silu(fields, "qwen3", attention_bias=has_bias, use_sliding_window=False)


def _gemma3(fields: Fields) -> Json:
    config = _sizes(fields)
    layers = config["num_hidden_layers"]
    has_window = [layer % _GEMMA3_PERIOD != 0 for layer in range(1, layers + 1)]
    # A period, or a truth value for each layer.
    if fields.value("attention.sliding_window_pattern", _GEMMA3_PERIOD) not in (_GEMMA3_PERIOD, has_window):
        reason = f"only one full layer in {_GEMMA3_PERIOD} is supported"
        raise fields.wrong("attention.sliding_window_pattern", reason)
    if layers not in _GEMMA3_LAYERS:
        known = ", ".join(map(str, _GEMMA3_LAYERS))
        raise fields.wrong("block_count", f"{layers}: the query scale is only known for models with {known} layers")
    width_per_head = config["hidden_size"] // config["num_attention_heads"]
    return config | {
        "model_type": "gemma3_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": False,
        "query_pre_attn_scalar": width_per_head if layers == max(_GEMMA3_LAYERS) else config["head_dim"],
        "layer_types": ["sliding_attention" if windowed else "full_attention" for windowed in has_window],
        "rope_theta": fields.number("rope.freq_base", 1e6),
        "rope_local_base_freq": fields.number("rope.freq_base_swa", 10_000.0),
        "sliding_window": fields.size("attention.sliding_window"),
    }


_BUILDERS: dict[str, Callable[[Fields], Json]] = {
    "llama": _llama,
    "qwen2": functools.partial(_silu, model_type="qwen2", use_sliding_window=False),
    "qwen3": _qwen3,
    "gemma3": _gemma3,
}
