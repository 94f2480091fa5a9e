"""Gemma 3: a Llama with four norms that scale by 1 + their weight, scaled embeddings, and windows in most layers.

Queries and keys are normalised, and the layers without a window turn more slowly.
"""

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import hf_config, layers
from knnprompt_jax.models.families import Family, llama, weight_names

_SLIDING, _FULL = _LAYER_TYPES = ("sliding_attention", "full_attention")


def _gemma3(hf: hf_config.Fields) -> config_lib.DecoderConfig:
    hf.require("use_bidirectional_attention", False)
    hf.require("attn_logit_softcapping", None)
    hf.require("final_logit_softcapping", None)
    hf.size("head_dim")
    kinds = _kinds_of_layers(hf)
    different = {
        "rotations": _rotations(hf),
        # `hidden_act` is an older name, without effect.
        "activation": hf.choice("hidden_activation", "gelu_pytorch_tanh", layers.ACTIVATIONS),
        "tied_head": hf.switch("tie_word_embeddings", True),
        "windows": tuple(hf.size("sliding_window") if kind == _SLIDING else 0 for kind in kinds),
        "layer_rotary": tuple(_LAYER_TYPES.index(kind) for kind in kinds),
        "norm": "rms_plus_one",
        "norm_positions": (config_lib.BEFORE, config_lib.OUTPUT),
        "qk_norm": "head",
        "attention_scale": hf.number("query_pre_attn_scalar", 256) ** -0.5,
        "embed_scale": hf.size("hidden_size") ** 0.5,
        **llama.attention_biases(hf),
    }
    return llama.config_from_hf(hf, **different)


def _kinds_of_layers(hf: hf_config.Fields) -> list[str]:
    """Return the kind of each layer; without `layer_types`, one layer in `sliding_window_pattern` has no window."""
    num_layers = hf.size("num_hidden_layers")
    pattern = hf.size("sliding_window_pattern", hf.size("_sliding_window_pattern", 6))
    hf.value("sliding_window")  # It has no effect if no layer has a window.
    default = [_FULL if layer % pattern == 0 else _SLIDING for layer in range(1, num_layers + 1)]
    return hf.per_layer("layer_types", num_layers, _LAYER_TYPES) or default


def _rotations(hf: hf_config.Fields) -> llama.Rope:
    """Return one table for layers with a window, one for the others. Only the latter is scaled."""
    nested = hf.table("rope_parameters") or {}
    if not set(nested) <= set(_LAYER_TYPES):
        raise hf.wrong("rope_parameters", f"{', '.join(nested)}, and not {', '.join(_LAYER_TYPES)}")
    given = {
        _SLIDING: {"rope_theta": hf.number("rope_local_base_freq", 1e4)},
        _FULL: {"rope_theta": hf.number("rope_theta", 1e6), **(hf.table("rope_scaling") or {})},
    }
    size = llama.head_size(hf)
    context = hf.size("max_position_embeddings")
    tables = []
    for kind in _LAYER_TYPES:
        parameters = {**given[kind], **(nested.get(kind) or {})}
        hf_config.refuse_partial_rotation(parameters)
        tables.append(hf_config.rotary_frequencies(parameters, size, context))
    return tuple(table for table, _ in tables), min(context for _, context in tables)


_TABLE = llama.table(
    *llama.OUTSIDE_RULES,
    *llama.PART_RULES,
    *weight_names.norm(llama.LAYER + "input_layernorm", "blocks.attention_norm"),
    *weight_names.norm(llama.LAYER + "post_attention_layernorm", "blocks.attention_output_norm"),
    *weight_names.norm(llama.LAYER + "pre_feedforward_layernorm", "blocks.mlp_norm"),
    *weight_names.norm(llama.LAYER + "post_feedforward_layernorm", "blocks.mlp_output_norm"),
    *llama.HEAD_NORM_RULES,
)
FAMILIES = (Family("gemma3_text", "Gemma3ForCausalLM", _gemma3, _TABLE),)
