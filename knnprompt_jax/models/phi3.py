"""Phi-3 and Phi-4: a Llama whose projections are fused, with LongRoPE for long contexts."""

import functools
from typing import Any

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import hf_config, llama_like, names, rope_config


def config_from_hf(hf: hf_config.Fields) -> config_lib.DecoderConfig:
    parameters = rope_config.parameters(hf, 1e4)
    if parameters.get("rope_type", parameters.get("type")) in ("su", "yarn"):  # Older names, in this family.
        parameters |= {"rope_type": "longrope", "type": "longrope"}
    original = hf.size("original_max_position_embeddings", 4096)
    context = hf.size("max_position_embeddings")
    table, context = rope_config.frequencies(parameters, llama_like.head_size(hf), context, original)
    for switch in ("attention_bias", "mlp_bias", "lm_head_bias"):
        hf.require(switch, False)
    for number in ("full_attn_mod", "interpolate_factor"):  # Phi-4-mini's.
        hf.require(number, 1)
    windowed = hf.value("sliding_window") is not None
    windows = (hf.size("sliding_window"),) * hf.size("num_hidden_layers") if windowed else ()
    different: dict[str, Any] = {"kv_heads": hf.size("num_attention_heads"), "epsilon": 1e-5, "windows": windows}
    return llama_like.config_from_hf(hf, "phi3", rope=((table,), context), **different)


_PHI4: dict[str, Any] = {"original_max_position_embeddings": 16384}
_shape = functools.partial(llama_like.shape, "phi3", rms_norm_eps=1e-5)
PUBLISHED = {
    "microsoft/Phi-3-mini-4k-instruct": _shape(3072, 32, 32, 32, 8192, 32064, 4096, sliding_window=2047),
    "microsoft/Phi-3-medium-4k-instruct": _shape(5120, 40, 40, 10, 17920, 32064, 4096, sliding_window=2047),
    "microsoft/phi-4": _shape(5120, 40, 40, 10, 17920, 100352, 16384, rope_theta=250000, **_PHI4),
}
_LAYER, _SELF, _FUSED_MLP = llama_like.LAYER, llama_like.SELF, "(n j) d -> d n j"
TABLE = llama_like.table(
    *llama_like.OUTSIDE_RULES,
    *llama_like.NORM_RULES,
    *names.fused_attention(_SELF + "qkv_proj", "(n j k) d -> d n j k", ("h", "g", "g")),
    *names.dense(_SELF + "o_proj", "blocks.attention.out", "d (h k) -> h k d"),
    *names.dense(_LAYER + "mlp.gate_up_proj", "blocks.mlp.gate_up", _FUSED_MLP, 0, ("f", "f"), 0),
    *names.dense(_LAYER + "mlp.gate_up_proj", "blocks.mlp.gate_up", _FUSED_MLP, 1, ("f", "f"), 1),
    *names.dense(_LAYER + "mlp.down_proj", "blocks.mlp.down", "d f -> f d"),
)
