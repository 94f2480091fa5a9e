"""Turn the metadata of a GGUF file into the equivalent config.json.

The keys are those of the config classes of `transformers`. Values that llama.cpp assumes and no file holds are constants here.
"""

import math
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from knnprompt_jax import errors
from knnprompt_jax.models.gguf import header as gguf_header
from knnprompt_jax.models.gguf import tensors as gguf_tensors

Fields = gguf_header.Fields
Json = dict[str, Any]

_THETA = 10_000.0  # llama.cpp's default base of rotary frequencies.
_NEOX_20B = {"hidden_size": 6144, "num_hidden_layers": 44}  # The only GPT-NeoX whose GELU is the tanh approximation.
# Numbers of layers of the published Gemmas. GGUF files lack the query scale; it is known for these models only, from the head size
# (27B: from the width per head).
_GEMMA2_LAYERS, _GEMMA3_LAYERS = (26, 42, 46), (18, 26, 34, 48, 62)
_GPT2_KEYS = {
    "hidden_size": "n_embd",
    "intermediate_size": "n_inner",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
}


def config_json(file: pathlib.Path) -> Json:
    """Return the config.json of a file, as `transformers` writes it, without the ids of special tokens.

    If a file divides rotary frequencies by factors (Llama 3.1), it has `rope_factors` in addition.

    Raises:
        UserError: the file cannot be read, lacks metadata, has unsupported metadata, or does not determine its model.
    """
    fields = gguf_header.model_fields(gguf_header.read(file))
    config = _BUILDERS[fields.arch](fields)
    fields.refuse_unread()
    return config


def _sizes(fields: Fields) -> Json:
    """Return the keys that all architectures share. The embeddings' rows, padding included, are the vocabulary."""
    fields.require("attention.causal", True)
    header, width = fields.header, fields.size("embedding_length")
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
    """Return the size of a head; unless it `is_free`, config.json has no key for it and it must be the width per head."""
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


def _rotary_share(fields: Fields, head: int) -> float:
    """Return the rotated part of each head, such that `int(head * share)` is the number of values in the file."""
    rotated = fields.size("rope.dimension_count", head)
    if rotated > head:
        raise fields.wrong("rope.dimension_count", f"{rotated} values of a head of {head}")
    part = rotated / head
    return part if int(head * part) == rotated else math.nextafter(part, 1)


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


def _longrope(fields: Fields) -> Json:
    """Return the keys of Phi-3, whose files have both sets of factors as tensors, or neither."""
    fields.choice("rope.scaling.type", "longrope", ("none", "longrope"))
    context = fields.size("context_length")
    original = fields.size("rope.scaling.original_context_length", context)
    attention = fields.number("rope.scaling.attn_factor", 1.0)
    short, long = (_factors(fields, f"rope_factors_{which}.weight") for which in ("short", "long"))
    if not short or not long:
        if short or long or attention != 1:
            raise errors.UserError(f"{fields.header.file}: rope_factors_short and rope_factors_long are both needed")
        return {"original_max_position_embeddings": original}
    scaling: Json = {"rope_type": "longrope", "short_factor": short, "long_factor": long}
    scale = context / original
    usual = math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 else 1.0
    if not math.isclose(attention, usual, rel_tol=1e-6):  # Rounded to float32 in the file.
        scaling["attention_factor"] = attention
    context_keys = {"original_max_position_embeddings": original}
    return {**context_keys, "rope_scaling": scaling | context_keys}


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
    share = _rotary_share(fields, head)
    config = {"model_type": "phi3", "hidden_act": "silu", "sliding_window": window, **_rms_sizes(fields)}
    return config | ({} if share == 1 else {"partial_rotary_factor": share}) | _longrope(fields)


def _gemma(fields: Fields, period: int, published: tuple[int, ...]) -> Json:
    """Return the keys of Gemma 2 and 3, in which all layers but every `period`-th have a window."""
    config = _rotary_sizes(fields)
    layers = config["num_hidden_layers"]
    has_window = [layer % period != 0 for layer in range(1, layers + 1)]
    pattern = fields.value("attention.sliding_window_pattern", period)  # A period, or a truth value for each layer.
    if pattern not in (period, has_window):
        raise fields.wrong("attention.sliding_window_pattern", f"only one full layer in {period} is supported")
    if layers not in published:
        known = ", ".join(map(str, published))
        raise fields.wrong("block_count", f"{layers}: the query scale is only known for models with {known} layers")
    width_per_head = config["hidden_size"] // config["num_attention_heads"]
    return config | {
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": False,
        "query_pre_attn_scalar": width_per_head if layers == max(published) else config["head_dim"],
        "layer_types": ["sliding_attention" if windowed else "full_attention" for windowed in has_window],
    }


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
        "rotary_emb_base": fields.number("rope.freq_base", _THETA),
        "rotary_pct": _rotary_share(fields, _head_size(fields)),
        "use_parallel_residual": fields.switch("use_parallel_residual", True),
        "attention_bias": "blk.0.attn_qkv.bias" in fields.header.tensors,
    }


def _gpt2(fields: Fields) -> Json:
    return {
        "model_type": "gpt2",
        **{_GPT2_KEYS.get(key, key): value for key, value in _sizes(fields).items()},
        "layer_norm_epsilon": fields.number("attention.layer_norm_epsilon"),
        "activation_function": "gelu_new",
    }


_BUILDERS: dict[str, Callable[[Fields], Json]] = {
    "llama": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "phi3": _phi3,
    "olmo2": _olmo2,
    "smollm3": _smollm3,
    "gptneox": _gptneox,
    "gpt2": _gpt2,
}
