"""Gemma 2: four norms that scale by 1 + their weight, scaled embeddings, windows in every other layer, capped logits."""

import functools
from typing import Any

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import hf_config, llama_like, names


def config_from_hf(hf: hf_config.Fields) -> config_lib.DecoderConfig:
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
    hf.value("hidden_act")  # The older name of `hidden_activation`, which counts.
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
        **llama_like.attention_biases(hf),
    }
    return llama_like.config_from_hf(hf, family, **values | different)


_capped = functools.partial(llama_like.shape, attn_logit_softcapping=50.0, final_logit_softcapping=30.0)
_shape = functools.partial(_capped, "gemma2", vocab=256000, context=8192, sliding_window=4096)
PUBLISHED = {
    "google/gemma-2-2b": _shape(2304, 26, 8, 4, 9216, head_dim=256, query_pre_attn_scalar=256),
    "google/gemma-2-9b": _shape(3584, 42, 16, 8, 14336, head_dim=256, query_pre_attn_scalar=256),
    "google/gemma-2-27b": _shape(4608, 46, 32, 16, 36864, head_dim=128, query_pre_attn_scalar=144),
}
_LAYER = llama_like.LAYER
TABLE = llama_like.table(
    *llama_like.OUTSIDE_RULES,
    *llama_like.PART_RULES,
    *names.norm(_LAYER + "input_layernorm", "blocks.attention_norm"),
    *names.norm(_LAYER + "post_attention_layernorm", "blocks.attention_output_norm"),
    *names.norm(_LAYER + "pre_feedforward_layernorm", "blocks.mlp_norm"),
    *names.norm(_LAYER + "post_feedforward_layernorm", "blocks.mlp_output_norm"),
)
