"""Gemma 2: four norms that scale by 1 + their weight, scaled embeddings, windows in every other layer, capped logits."""

import functools
from typing import Any

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import hf_config, llama_like
from knnprompt_jax.models.conversion import Rule


def config_from_hf(hf: hf_config.Fields) -> config_lib.DecoderConfig:
    """The decoder that a config.json describes.

    Raises:
        UserError: a switch that changes the model and is not supported here, a size that is none, or one that is missing.
    """
    layers = hf.size("num_hidden_layers")
    windows = llama_like.windows(hf, [llama_like.LAYER_TYPES[layer % 2] for layer in range(layers)])
    # Absent is not null here: then they are what was published.
    caps = {
        ours: hf.optional_number(theirs) if hf.has(theirs) else published
        for ours, theirs, published in (
            ("attention_cap", "attn_logit_softcapping", 50.0),
            ("logit_cap", "final_logit_softcapping", 30.0),
        )
    }
    return from_hf(hf, "gemma2", windows=windows, **caps)


def from_hf(hf: hf_config.Fields, family: str, **different: Any) -> config_lib.DecoderConfig:
    """What Gemma 2 and 3 have in common."""
    bias = hf.switch("attention_bias", False)
    hf.value("hidden_act")  # An older key beside the one that counts.
    hf.require("use_bidirectional_attention", False)
    hf.size("head_dim")
    values = {
        "activation_key": "hidden_activation",
        "activation": "gelu_pytorch_tanh",
        "tied_head": True,
        "norm": "rms_plus_one",
        "norm_places": (config_lib.BEFORE, config_lib.OUTPUT),
        "attention_scale": hf.number("query_pre_attn_scalar", 256) ** -0.5,
        "embed_scale": hf.size("hidden_size") ** 0.5,
        "qkv_bias": bias,
        "out_bias": bias,
    }
    return llama_like.config_from_hf(hf, family, **values | different)


_shape = functools.partial(llama_like.shape, "gemma2", attn_logit_softcapping=50.0, final_logit_softcapping=30.0)
PUBLISHED = {
    "google/gemma-2-2b": _shape(
        2304, 26, 8, 4, 9216, 256000, 8192, head_dim=256, query_pre_attn_scalar=256, sliding_window=4096
    ),
    "google/gemma-2-9b": _shape(
        3584, 42, 16, 8, 14336, 256000, 8192, head_dim=256, query_pre_attn_scalar=256, sliding_window=4096
    ),
    "google/gemma-2-27b": _shape(
        4608, 46, 32, 16, 36864, 256000, 8192, head_dim=128, query_pre_attn_scalar=144, sliding_window=4096
    ),
}
NORM_RULES = (
    Rule("layers.{layer}.input_layernorm.weight", "blocks.attention_norm.scale", "d -> d"),
    Rule("layers.{layer}.post_attention_layernorm.weight", "blocks.attention_output_norm.scale", "d -> d"),
    Rule("layers.{layer}.pre_feedforward_layernorm.weight", "blocks.mlp_norm.scale", "d -> d"),
    Rule("layers.{layer}.post_feedforward_layernorm.weight", "blocks.mlp_output_norm.scale", "d -> d"),
)
TABLE = llama_like.table(*llama_like.OUTSIDE_RULES, *NORM_RULES, *llama_like.ATTENTION_RULES, *llama_like.MLP_RULES)
