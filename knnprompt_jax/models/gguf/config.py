"""Turn the metadata of a GGUF file into the equivalent config.json.

The keys are those of the config classes of `transformers`. Values that llama.cpp assumes and no file holds are
constants here.
"""

import functools
import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from knnprompt_jax import errors
from knnprompt_jax.models.gguf import header as gguf_header
from knnprompt_jax.models.gguf import tensors as gguf_tensors
from knnprompt_jax.models.weights import kept_files

Fields = gguf_header.Fields
Json = dict[str, Any]

_THETA = 10_000.0  # llama.cpp's default base of rotary frequencies.
# The only full layer in this many; the others have a window.
_GEMMA3_PERIOD = 6
# Numbers of layers of the published Gemmas. GGUF files lack the query scale; it is known for these models only, from
# the head size (27B: from the width per head).
_GEMMA3_LAYERS = (18, 26, 34, 48, 62)


def config_json(file: pathlib.Path) -> Json:
    """Return the config.json of a file, as `transformers` writes it, without the ids of special tokens.

    If a file divides rotary frequencies by factors (Llama 3.1), it has `rope_factors` in addition.

    Raises:
        UserError: the file cannot be read, lacks metadata, has unsupported metadata, or does not determine its model.
    """
    return kept_files.keep(file, "config.json", functools.partial(_config, file), json.dumps, json.loads)


def _config(file: pathlib.Path) -> Json:
    fields = gguf_header.model_fields(gguf_header.read(file))
    config = _BUILDERS[fields.arch](fields)
    fields.refuse_unread()
    return config


def _sizes(fields: Fields) -> Json:
    """Return the keys that all architectures share. The embeddings' rows, padding included, are the vocabulary."""
    fields.require("attention.causal", True)
    header = fields.header
    width = fields.size("embedding_length")
    if "token_embd.weight" not in header.tensors:
        raise errors.UserError(f"{header.file}: no tensor token_embd.weight")
    rows, *columns = header.shape("token_embd.weight")
    if columns != [width]:
        raise fields.wrong("embedding_length", f"{width}, and token_embd has {columns}")
    return {
        "vocab_size": rows,
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "hidden_size": width,
        "intermediate_size": fields.size("feed_forward_length"),
        "num_hidden_layers": gguf_header.num_layers(fields),
        "num_attention_heads": fields.size("attention.head_count"),
        "max_position_embeddings": fields.size("context_length"),
    }


def _rms_sizes(fields: Fields) -> Json:
    """Return the keys of architectures with RMSNorm and grouped heads."""
    return _sizes(fields) | {
        "num_key_value_heads": fields.size("attention.head_count_kv", fields.size("attention.head_count")),
        "rms_norm_eps": fields.number("attention.layer_norm_rms_epsilon"),
        "rope_theta": fields.number("rope.freq_base", _THETA),
    }


def _head_size(fields: Fields, is_free: bool = True) -> int:
    """Return the size of a head. Unless it `is_free`, it must be the width per head."""
    width_per_head = max(1, fields.size("embedding_length") // fields.size("attention.head_count"))
    if not is_free:
        fields.require("attention.key_length", width_per_head)
    size = fields.size("attention.key_length", width_per_head)
    fields.require("attention.value_length", size)
    return size


def _rotary_sizes(fields: Fields, has_head_size: bool = True) -> Json:
    """Return the keys of architectures with rotary positions over the whole head."""
    head = _head_size(fields, is_free=has_head_size)
    fields.require("rope.dimension_count", head)
    return _rms_sizes(fields) | ({"head_dim": head} if has_head_size else {}) | _scaling(fields)


def _scaling(fields: Fields) -> Json:
    """Return `rope_scaling`, or `rope_factors` by which each frequency is divided (Llama 3.1), or an empty dictionary.

    As in llama.cpp, scaling without a type is linear.
    """
    factors = _factors(fields, "rope_freqs.weight")
    kind = fields.choice("rope.scaling.type", "linear", ("none", "linear"))
    factor = fields.number("rope.scaling.factor") if fields.value("rope.scaling.factor") else 1.0
    if kind == "none" or factor == 1:
        return {"rope_factors": factors} if factors else {}
    if factors:
        raise fields.wrong("rope.scaling.type", f"{kind}, though the file has rope_freqs too")
    return {"rope_scaling": {"rope_type": kind, "factor": factor}}


def _factors(fields: Fields, name: str) -> list[float]:
    """Return the numbers of a tensor; an empty list if the file does not have it."""
    if name not in fields.header.tensors:
        return []
    values = gguf_tensors.numbers(fields.header, name).astype(np.float32).reshape(-1)
    if not (np.isfinite(values) & (values > 0)).all():
        raise errors.UserError(f"{fields.header.file}: {name} holds numbers that are not positive")
    return [float(str(value)) for value in values]


def _silu(
    fields: Fields, model_type: str, biases: tuple[str, ...] = (), has_head_size: bool = False, **constants: Any
) -> Json:
    """Return the keys of a family like Llama: what all share, the `biases` that the file may have, and `constants`."""
    tensors = {"attention_bias": "blk.0.attn_q.bias", "mlp_bias": "blk.0.ffn_up.bias"}
    has_bias = {bias: tensors[bias] in fields.header.tensors for bias in biases}
    shared = _rotary_sizes(fields, has_head_size)
    return {"model_type": model_type, "hidden_act": "silu", **shared, **has_bias, **constants}


def _llama(fields: Fields) -> Json:
    """Llama, or Mistral, whose files have the same architecture and a window."""
    if fields.value("attention.sliding_window"):
        window = fields.size("attention.sliding_window")
        return _silu(fields, "mistral", has_head_size=True, sliding_window=window)
    return _silu(fields, "llama", ("attention_bias", "mlp_bias"), has_head_size=True)


def _qwen2(fields: Fields) -> Json:
    return _silu(fields, "qwen2", use_sliding_window=False)


def _qwen3(fields: Fields) -> Json:
    return _silu(fields, "qwen3", ("attention_bias",), has_head_size=True, use_sliding_window=False)


def _gemma3(fields: Fields) -> Json:
    config = _rotary_sizes(fields)
    layers = config["num_hidden_layers"]
    has_window = [layer % _GEMMA3_PERIOD != 0 for layer in range(1, layers + 1)]
    # A period, or a truth value for each layer.
    pattern = fields.value("attention.sliding_window_pattern", _GEMMA3_PERIOD)
    if pattern not in (_GEMMA3_PERIOD, has_window):
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
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma3": _gemma3,
}
