"""Turn the metadata of a GGUF file into the equivalent config.json.

The keys are those of the config classes of `transformers`. Values that llama.cpp assumes and no file holds are constants here.
"""

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from knnprompt_jax import errors
from knnprompt_jax.models.gguf import header as gguf_header
from knnprompt_jax.models.gguf import rope as gguf_rope
from knnprompt_jax.models.gguf import vocabulary as gguf_vocabulary

Fields = gguf_header.Fields
Json = dict[str, Any]

_NEOX_20B = {"hidden_size": 6144, "num_hidden_layers": 44}  # The only GPT-NeoX whose GELU is the tanh approximation.
# Numbers of layers of the published Gemmas. Only of these is the query scale known: the head size, or in the largest (27B) the
# width per head.
_GEMMA2_LAYERS, _GEMMA3_LAYERS = (26, 42, 46), (18, 26, 34, 48, 62)


def config_json(file: pathlib.Path) -> Json:
    """Return the complete config.json of a file, as `transformers` writes it.

    If a file divides rotary frequencies by factors (Llama 3.1), it has `rope_factors` in addition.

    Raises:
        UserError: the file cannot be read, lacks metadata, has unsupported metadata, or does not determine its model.
    """
    fields = gguf_header.model_fields(gguf_header.read(file))
    config = _BUILDERS[fields.arch](fields)
    special = gguf_header.tokenizer_fields(fields.header)
    config |= {f"{role}_token_id": special.value(gguf_vocabulary.ROLES[role]) for role in ("bos", "eos", "pad")}
    fields.refuse_unread()
    return config


def _vocabulary(fields: Fields) -> Json:
    """Return the size of the vocabulary: the rows of the embeddings, padding included. Without a head they are tied."""
    tensors, width = fields.header.tensors, fields.size("embedding_length")
    if "token_embd.weight" not in tensors:
        raise errors.UserError(f"{fields.header.file}: no tensor token_embd.weight")
    rows, *columns = tensors["token_embd.weight"].shape
    if columns != [width]:
        raise fields.wrong("embedding_length", f"{width}, and token_embd has {columns}")
    return {"vocab_size": rows, "tie_word_embeddings": "output.weight" not in tensors}


def _sizes(fields: Fields) -> Json:
    return _vocabulary(fields) | {
        "hidden_size": fields.size("embedding_length"),
        "intermediate_size": fields.size("feed_forward_length"),
        "num_hidden_layers": gguf_header.num_layers(fields),
        "num_attention_heads": fields.size("attention.head_count"),
        "max_position_embeddings": fields.size("context_length"),
    }


def _rms_sizes(fields: Fields) -> Json:
    """Return the keys of architectures with RMSNorm and grouped heads."""
    if not fields.switch("attention.causal", True):
        raise fields.wrong("attention.causal", "only causal attention is supported")
    return _sizes(fields) | {
        "num_key_value_heads": fields.size("attention.head_count_kv", fields.size("attention.head_count")),
        "rms_norm_eps": fields.number("attention.layer_norm_rms_epsilon"),
        "rope_theta": fields.number("rope.freq_base", gguf_rope.DEFAULT_THETA),
    }


def _head_size(fields: Fields, is_free: bool = True) -> int:
    """Return the size of a head; unless it `is_free`, config.json has no key for it and it must be the width per head."""
    heads, width = fields.size("attention.head_count"), fields.size("embedding_length")
    size = fields.size("attention.key_length", max(1, width // heads))
    if fields.size("attention.value_length", size) != size:
        raise fields.wrong("attention.value_length", f"only that of the keys, {size}, is supported")
    if not is_free and size * heads != width:
        raise fields.wrong("attention.key_length", "only the width divided by the heads is supported")
    return size


def _rotary_sizes(fields: Fields, has_head_size: bool = True) -> Json:
    """Return the keys of architectures with rotary positions over the whole head."""
    head = _head_size(fields, is_free=has_head_size)
    if gguf_rope.share(fields, head) != 1:
        raise fields.wrong("rope.dimension_count", f"only the head's {head} values are supported")
    return _rms_sizes(fields) | ({"head_dim": head} if has_head_size else {}) | gguf_rope.scaling(fields)


def _has(fields: Fields, name: str) -> bool:
    """Return whether the layers have a tensor of that name."""
    return f"blk.0.{name}" in fields.header.tensors


def _silu(
    fields: Fields, model_type: str, biases: tuple[str, ...] = (), has_head_size: bool = False, **constants: Any
) -> Json:
    """Return the keys of a family like Llama: what all share, the `biases` that the file may have, and `constants`."""
    tensors = {"attention_bias": "attn_q.bias", "mlp_bias": "ffn_up.bias"}
    has_bias = {bias: _has(fields, tensors[bias]) for bias in biases}
    return {
        "model_type": model_type,
        "hidden_act": "silu",
        **_rotary_sizes(fields, has_head_size),
        **has_bias,
        **constants,
    }


def _llama(fields: Fields) -> Json:
    """Llama, or Mistral, whose files have the same architecture and a window."""
    if fields.value("attention.sliding_window"):
        window = fields.size("attention.sliding_window")
        return _silu(fields, "mistral", has_head_size=True, sliding_window=window)
    return _silu(fields, "llama", ("attention_bias", "mlp_bias"), has_head_size=True)


def _qwen3(fields: Fields) -> Json:
    return _silu(fields, "qwen3", ("attention_bias",), has_head_size=True, use_sliding_window=False)


def _smollm3(fields: Fields) -> Json:
    biases = ("attention_bias", "mlp_bias")
    return _silu(fields, "smollm3", biases, no_rope_layer_interval=4, use_sliding_window=False)


def _olmo2(fields: Fields) -> Json:
    if fields.value("attention.sliding_window"):
        raise fields.wrong("attention.sliding_window", "an OLMo 3; of this architecture only OLMo 2 is supported")
    return _silu(fields, "olmo2", ("attention_bias",))


def _phi3(fields: Fields) -> Json:
    head, window = _head_size(fields, is_free=False), fields.value("attention.sliding_window")
    if window is None:
        raise fields.wrong("attention.sliding_window", "missing: convert the model again with a newer llama.cpp")
    window = fields.size("attention.sliding_window") if window else None
    share = gguf_rope.share(fields, head)
    config = {"model_type": "phi3", "hidden_act": "silu", "sliding_window": window, **_rms_sizes(fields)}
    return config | ({} if share == 1 else {"partial_rotary_factor": share}) | gguf_rope.longrope(fields)


def _gemma(fields: Fields, period: int, published: tuple[int, ...]) -> Json:
    """Return the keys of Gemma 2 and 3, in which all layers but every `period`-th have a window."""
    config = _rotary_sizes(fields)
    layers = config["num_hidden_layers"]
    kinds = ["full_attention" if layer % period == 0 else "sliding_attention" for layer in range(1, layers + 1)]
    pattern = fields.value("attention.sliding_window_pattern", period)  # A period, or a truth value for each layer.
    if isinstance(pattern, np.ndarray):
        agrees = pattern.astype(bool).tolist() == [kind == "sliding_attention" for kind in kinds]
    else:
        agrees = pattern == period
    if not agrees:
        raise fields.wrong("attention.sliding_window_pattern", f"only one full layer in {period} is supported")
    if layers not in published:
        known = ", ".join(map(str, published))
        raise fields.wrong("block_count", f"{layers}: the query scale is only known for models with {known} layers")
    width_per_head = config["hidden_size"] // config["num_attention_heads"]
    config["query_pre_attn_scalar"] = width_per_head if layers == max(published) else config["head_dim"]
    return config | {"hidden_activation": "gelu_pytorch_tanh", "attention_bias": False, "layer_types": kinds}


def _gemma2(fields: Fields) -> Json:
    return {
        "model_type": "gemma2",
        **_gemma(fields, 2, _GEMMA2_LAYERS),
        "sliding_window": fields.size("attention.sliding_window", 4096),
        "attn_logit_softcapping": fields.number("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": fields.number("final_logit_softcapping", 30.0),
    }


def _gemma3(fields: Fields) -> Json:
    cap = fields.value("final_logit_softcapping")
    return {
        "model_type": "gemma3_text",
        **_gemma(fields, 6, _GEMMA3_LAYERS),
        "rope_theta": fields.number("rope.freq_base", 1e6),
        "rope_local_base_freq": fields.number("rope.freq_base_swa", 10_000.0),
        "sliding_window": fields.size("attention.sliding_window"),
        "attn_logit_softcapping": None,
        "final_logit_softcapping": fields.number("final_logit_softcapping") if cap else None,
    }


def _gptneox(fields: Fields) -> Json:
    config = _sizes(fields)
    is_20b = all(config[key] == value for key, value in _NEOX_20B.items())
    return {
        "model_type": "gpt_neox",
        **config,
        "hidden_act": "gelu_fast" if is_20b else "gelu",
        "layer_norm_eps": fields.number("attention.layer_norm_epsilon"),
        "rotary_emb_base": fields.number("rope.freq_base", gguf_rope.DEFAULT_THETA),
        "rotary_pct": gguf_rope.share(fields, _head_size(fields)),
        "use_parallel_residual": fields.switch("use_parallel_residual", True),
        "attention_bias": _has(fields, "attn_qkv.bias"),
    }


def _gpt2(fields: Fields) -> Json:
    return {
        "model_type": "gpt2",
        **_vocabulary(fields),
        "n_embd": fields.size("embedding_length"),
        "n_inner": fields.size("feed_forward_length"),
        "n_layer": gguf_header.num_layers(fields),
        "n_head": fields.size("attention.head_count"),
        "n_positions": fields.size("context_length"),
        "layer_norm_epsilon": fields.number("attention.layer_norm_epsilon"),
        "activation_function": "gelu_new",
    }


_BUILDERS: dict[str, Callable[[Fields], Json]] = {
    "llama": _llama,
    "qwen2": lambda fields: _silu(fields, "qwen2", use_sliding_window=False),
    "qwen3": _qwen3,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "phi3": _phi3,
    "olmo2": _olmo2,
    "smollm3": _smollm3,
    "gptneox": _gptneox,
    "gpt2": _gpt2,
}
