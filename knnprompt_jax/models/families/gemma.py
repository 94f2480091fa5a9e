"""Gemma 2 and 3: Llamas with four norms that scale by 1 + their weight, scaled embeddings, and windows in most layers.

Gemma 2 caps its logits. Gemma 3 normalises queries and keys instead, and its layers without a window turn more slowly.
"""

from typing import Any

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import hf_config
from knnprompt_jax.models.families import Family, llama, names, rope


def _config(hf: hf_config.Fields, family: str, **different: Any) -> config_lib.DecoderConfig:
    """Read what Gemma 2 and 3 share."""
    hf.value("hidden_act")  # The older name of `hidden_activation`, which counts.
    hf.require("use_bidirectional_attention", False)
    hf.size("head_dim")
    shared = {
        "activation_key": "hidden_activation",
        "activation": "gelu_pytorch_tanh",
        "tied_head": True,
        "norm": "rms_plus_one",
        "norm_places": (config_lib.BEFORE, config_lib.OUTPUT),
        "attention_scale": hf.number("query_pre_attn_scalar", 256) ** -0.5,
        "embed_scale": hf.size("hidden_size") ** 0.5,
        **llama.attention_biases(hf),
    }
    return llama.config_from_hf(hf, family, **shared | different)


def _gemma2(hf: hf_config.Fields) -> config_lib.DecoderConfig:
    def cap(key: str, published: float) -> float | None:
        return hf.optional_number(key) if hf.has(key) else published  # Null means none; absent means the published one.

    default = [llama.LAYER_TYPES[layer % 2] for layer in range(hf.size("num_hidden_layers"))]
    caps = {"attention_cap": cap("attn_logit_softcapping", 50.0), "logit_cap": cap("final_logit_softcapping", 30.0)}
    return _config(hf, "gemma2", windows=llama.windows(hf, default), **caps)


def _gemma3(hf: hf_config.Fields) -> config_lib.DecoderConfig:
    if hf.value("attn_logit_softcapping") is not None:  # `transformers` reads and ignores it.
        raise hf.wrong("attn_logit_softcapping", "not supported in gemma3_text; only null is")
    num_layers = hf.size("num_hidden_layers")
    pattern = hf.size("sliding_window_pattern", hf.size("_sliding_window_pattern", 6))
    default = [llama.FULL if (layer + 1) % pattern == 0 else llama.SLIDING for layer in range(num_layers)]
    kinds = hf.per_layer("layer_types", num_layers, llama.LAYER_TYPES) or default
    return _config(
        hf,
        "gemma3_text",
        rotations=_gemma3_rotations(hf),
        rotary_of_layer=tuple(llama.LAYER_TYPES.index(kind) for kind in kinds),
        windows=llama.windows(hf, default),
        qk_norm="head",
        logit_cap=hf.optional_number("final_logit_softcapping"),
    )


def _gemma3_rotations(hf: hf_config.Fields) -> llama.Rope:
    """Return one table for layers with a window, one for the others. Only the latter is scaled."""
    nested = hf.table("rope_parameters") or {}
    if not set(nested) <= set(llama.LAYER_TYPES):
        raise hf.wrong("rope_parameters", f"{', '.join(nested)}, and not {', '.join(llama.LAYER_TYPES)}")
    given = {
        llama.SLIDING: {"rope_theta": hf.number("rope_local_base_freq", 1e4)},
        llama.FULL: {"rope_theta": hf.number("rope_theta", 1e6), **(hf.table("rope_scaling") or {})},
    }
    size, context, tables = llama.head_size(hf), hf.size("max_position_embeddings"), []
    for kind in llama.LAYER_TYPES:
        parameters = {**given[kind], **(nested.get(kind) or {})}
        rope.refuse_partial(parameters)
        tables.append(rope.frequencies(parameters, size, context))
    return tuple(table for table, _ in tables), min(context for _, context in tables)


_TABLE = llama.table(
    *llama.OUTSIDE_RULES,
    *llama.PART_RULES,
    *names.norm(llama.LAYER + "input_layernorm", "blocks.attention_norm"),
    *names.norm(llama.LAYER + "post_attention_layernorm", "blocks.attention_output_norm"),
    *names.norm(llama.LAYER + "pre_feedforward_layernorm", "blocks.mlp_norm"),
    *names.norm(llama.LAYER + "post_feedforward_layernorm", "blocks.mlp_output_norm"),
)
FAMILIES = (
    Family("gemma2", "Gemma2ForCausalLM", _gemma2, _TABLE),
    Family("gemma3_text", "Gemma3ForCausalLM", _gemma3, llama.table(*_TABLE.rules, *llama.HEAD_NORM_RULES)),
)
