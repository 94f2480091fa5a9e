"""Gemma 2 and 3: Llamas with four norms that scale by 1 + their weight, scaled embeddings, and windows in most layers.

Gemma 2 caps its logits. Gemma 3 normalises queries and keys instead, and its layers without a window turn more slowly.
"""

from typing import Any

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import hf_config, layers
from knnprompt_jax.models.families import Family, llama, names, rope

_SLIDING, _FULL = _LAYER_TYPES = ("sliding_attention", "full_attention")


def _config(hf: hf_config.Fields, default_types: list[str], **different: Any) -> config_lib.DecoderConfig:
    """Read what Gemma 2 and 3 share. `default_types` are the kinds of layers of files without `layer_types`."""
    kinds = hf.per_layer("layer_types", hf.size("num_hidden_layers"), _LAYER_TYPES) or default_types
    hf.value("sliding_window")  # It has no effect if no layer has a window.
    # Gemma 2 9B and 27B have it beside `sliding_window`; `transformers` reads only the latter.
    hf.value("sliding_window_size")
    hf.require("use_bidirectional_attention", False)
    hf.size("head_dim")
    shared = {
        # `hidden_act` is an older name, without effect.
        "activation": hf.choice("hidden_activation", "gelu_pytorch_tanh", layers.ACTIVATIONS),
        "tied_head": hf.switch("tie_word_embeddings", True),
        "windows": tuple(hf.size("sliding_window") if kind == _SLIDING else 0 for kind in kinds),
        "layer_rotary": tuple(map(_LAYER_TYPES.index, kinds)),
        "norm": "rms_plus_one",
        "norm_places": (config_lib.BEFORE, config_lib.OUTPUT),
        "attention_scale": hf.number("query_pre_attn_scalar", 256) ** -0.5,
        "embed_scale": hf.size("hidden_size") ** 0.5,
        **llama.attention_biases(hf),
    }
    return llama.config_from_hf(hf, **shared | different)


def _gemma2(hf: hf_config.Fields) -> config_lib.DecoderConfig:
    def cap(key: str, published: float) -> float | None:
        return hf.optional_number(key) if hf.has(key) else published  # Null means none; absent means the published one.

    default = [_LAYER_TYPES[layer % 2] for layer in range(hf.size("num_hidden_layers"))]
    caps = {"attention_cap": cap("attn_logit_softcapping", 50.0), "logit_cap": cap("final_logit_softcapping", 30.0)}
    return _config(hf, default, layer_rotary=(), **caps)


def _gemma3(hf: hf_config.Fields) -> config_lib.DecoderConfig:
    if hf.value("attn_logit_softcapping") is not None:  # `transformers` reads and ignores it.
        raise hf.wrong("attn_logit_softcapping", "not supported in gemma3_text; only null is")
    pattern = hf.size("sliding_window_pattern", hf.size("_sliding_window_pattern", 6))
    default = [_LAYER_TYPES[layer % pattern == 0] for layer in range(1, hf.size("num_hidden_layers") + 1)]
    cap = hf.optional_number("final_logit_softcapping")
    rotations = _gemma3_rotations(hf)
    return _config(hf, default, rotations=rotations, qk_norm="head", logit_cap=cap)


def _gemma3_rotations(hf: hf_config.Fields) -> llama.Rope:
    """Return one table for layers with a window, one for the others. Only the latter is scaled."""
    nested = hf.table("rope_parameters") or {}
    if not set(nested) <= set(_LAYER_TYPES):
        raise hf.wrong("rope_parameters", f"{', '.join(nested)}, and not {', '.join(_LAYER_TYPES)}")
    given = {
        _SLIDING: {"rope_theta": hf.number("rope_local_base_freq", 1e4)},
        _FULL: {"rope_theta": hf.number("rope_theta", 1e6), **(hf.table("rope_scaling") or {})},
    }
    size, context, tables = llama.head_size(hf), hf.size("max_position_embeddings"), []
    for kind in _LAYER_TYPES:
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
