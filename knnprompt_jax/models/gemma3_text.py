"""Gemma 3 for text: Gemma 2 with normalised queries and keys, five layers with a window to one without, and no caps."""

import functools

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import gemma2, hf_config, llama_like, rope_config


def config_from_hf(hf: hf_config.Fields) -> config_lib.DecoderConfig:
    if hf.value("attn_logit_softcapping") is not None:  # `transformers` reads it and does nothing with it.
        raise hf.wrong("attn_logit_softcapping", "not supported in gemma3_text; only null is")
    layers = hf.size("num_hidden_layers")
    pattern = hf.size("sliding_window_pattern", hf.size("_sliding_window_pattern", 6))
    default = [llama_like.FULL if (layer + 1) % pattern == 0 else llama_like.SLIDING for layer in range(layers)]
    windows = llama_like.windows(hf, default)
    kinds = hf.per_layer("layer_types", layers, llama_like.LAYER_TYPES) or default
    return gemma2.from_hf(
        hf,
        "gemma3_text",
        rope=_rope(hf),
        rotary_of_layer=tuple(llama_like.LAYER_TYPES.index(kind) for kind in kinds),
        windows=windows,
        qk_norm="head",
        logit_cap=hf.optional_number("final_logit_softcapping"),
    )


def _rope(hf: hf_config.Fields) -> llama_like.Rope:
    """Layers with a window turn faster; only the others are scaled."""
    nested = hf.table("rope_parameters") or {}
    if nested and not set(nested) <= set(llama_like.LAYER_TYPES):
        raise hf.wrong("rope_parameters", f"{', '.join(nested)}, and not {', '.join(llama_like.LAYER_TYPES)}")
    given = {
        llama_like.SLIDING: {"rope_theta": hf.number("rope_local_base_freq", 1e4)},
        llama_like.FULL: {"rope_theta": hf.number("rope_theta", 1e6), **(hf.table("rope_scaling") or {})},
    }
    size, context = llama_like.head_size(hf), hf.size("max_position_embeddings")
    of_kinds = [{**given[kind], **(nested.get(kind) or {})} for kind in llama_like.LAYER_TYPES]
    for parameters in of_kinds:
        rope_config.refuse_partial(parameters)
    both = [rope_config.frequencies(parameters, size, context) for parameters in of_kinds]
    return tuple(table for table, _ in both), min(context for _, context in both)


_shape = functools.partial(llama_like.shape, "gemma3_text", head_dim=256, query_pre_attn_scalar=256, vocab=262144)
PUBLISHED = {
    "google/gemma-3-270m": _shape(640, 18, 4, 1, 2048, context=32768, sliding_window=512),
    "google/gemma-3-1b-pt": _shape(1152, 26, 4, 1, 6912, context=32768, sliding_window=512),
}
TABLE = llama_like.table(*gemma2.TABLE.rules, *llama_like.HEAD_NORM_RULES)
