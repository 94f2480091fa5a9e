"""Gemma 2 and 3 from GGUF files, of which the files say least."""

from typing import Any

import numpy as np

from knnprompt_jax.models.gguf import fields as gguf_fields
from knnprompt_jax.models.gguf import sizes as gguf_sizes

Json = dict[str, Any]

# Numbers of layers of the published models, and of the 27B, whose query scale is the width per head. No other models are known.
_GEMMA2_LAYERS, _GEMMA2_27B = (26, 42, 46), 46
_GEMMA3_LAYERS, _GEMMA3_27B = (18, 26, 34, 48, 62), 62
_GEMMA3_LOCAL_THETA = 10_000.0
_GEMMA3_PERIOD = 6


def _query_scale(fields: gguf_fields.Fields, published: tuple[int, ...], by_width: int) -> int:
    """`query_pre_attn_scalar`, which is known of the published models alone."""
    layers = gguf_fields.num_layers(fields)
    if layers not in published:
        known = ", ".join(map(str, published))
        raise fields.wrong("block_count", f"{layers}: the query scale is known of models with {known} layers alone")
    if layers == by_width:
        return fields.size("embedding_length") // fields.size("attention.head_count")
    return gguf_sizes.head_size(fields)


def _gemma(fields: gguf_fields.Fields, period: int) -> Json:
    """All but every `period`-th layer see a window."""
    config = gguf_sizes.whole_rotary(fields)
    layers = range(1, config["num_hidden_layers"] + 1)
    kinds = ["sliding_attention" if layer % period else "full_attention" for layer in layers]
    pattern = fields.value("attention.sliding_window_pattern")
    if pattern is not None and not _agree(pattern, period, kinds):
        raise fields.wrong("attention.sliding_window_pattern", f"only one full layer in {period} is supported")
    return config | {"hidden_activation": "gelu_pytorch_tanh", "attention_bias": False, "layer_types": kinds}


def _agree(pattern: Any, period: int, kinds: list[str]) -> bool:
    """Whether a pattern in the file, a period or a truth value for each layer, is the published pattern."""
    if isinstance(pattern, np.ndarray):
        return pattern.astype(bool).tolist() == [kind == "sliding_attention" for kind in kinds]
    return pattern == period


def gemma2(fields: gguf_fields.Fields) -> Json:
    return {
        "model_type": "gemma2",
        **_gemma(fields, period=2),
        "query_pre_attn_scalar": _query_scale(fields, _GEMMA2_LAYERS, _GEMMA2_27B),
        "sliding_window": fields.size("attention.sliding_window", 4096),
        "attn_logit_softcapping": fields.number("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": fields.number("final_logit_softcapping", 30.0),
    }


def gemma3(fields: gguf_fields.Fields) -> Json:
    cap = fields.value("final_logit_softcapping")
    return {
        "model_type": "gemma3_text",
        **_gemma(fields, _GEMMA3_PERIOD),
        "rope_theta": fields.number("rope.freq_base", 1e6),
        "rope_local_base_freq": fields.number("rope.freq_base_swa", _GEMMA3_LOCAL_THETA),
        "query_pre_attn_scalar": _query_scale(fields, _GEMMA3_LAYERS, _GEMMA3_27B),
        "sliding_window": fields.size("attention.sliding_window"),
        "attn_logit_softcapping": None,
        "final_logit_softcapping": fields.number("final_logit_softcapping") if cap else None,
    }
