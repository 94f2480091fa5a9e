"""Llama and its relatives: RMSNorm before each part, rotary positions, grouped keys and values, a gated MLP.

`config_from_hf` reads what they share. Each relative is a function that says what is different, and a `Family` at the
end.
"""

from typing import Any

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import layers
from knnprompt_jax.models.families import Family, weight_names
from knnprompt_jax.models.families.weight_names import NameRule

# Tables of frequencies, and the context in tokens that they support.
Rope = tuple[tuple[config_lib.Frequencies, ...], int]
_SLIDING = "sliding_attention"
_FULL = "full_attention"
_LAYER_TYPES = (_SLIDING, _FULL)


def config_from_hf(
    hf: config_lib.Fields,
    *,
    rotations: Rope | None = None,
    kv_heads: int | None = None,
    epsilon: float = 1e-6,
    **different: Any,
) -> config_lib.DecoderConfig:
    """Return the decoder that a config.json describes.

    Args:
        hf: the config.json. Its sizes are required.
        rotations: the rotary positions, unless they are the usual ones with base 10,000.
        kv_heads: the default of `num_key_value_heads`, which is required without one.
        epsilon: the default of `rms_norm_eps`.
        different: fields of the result that differ from Llama's.

    Raises:
        UserError: a switch that is not supported and changes the model, or a size that is missing or wrong.
    """
    width = hf.size("hidden_size")
    heads = hf.size("num_attention_heads")
    size = head_size(hf)
    tables, context = rotations or rotations_of(hf, 1e4)
    shared = {
        "family": hf.value("model_type"),
        "vocab_size": hf.size("vocab_size"),
        "width": width,
        "num_layers": hf.size("num_hidden_layers"),
        "num_heads": heads,
        "num_kv_heads": hf.divisor("num_key_value_heads", heads, kv_heads),
        "head_size": size,
        "mlp_width": hf.size("intermediate_size"),
        "num_positions": context,
        "embed_width": width,
        "attention_scale": size**-0.5,
        "position_table": False,
        "rotary": tables,
        "activation": hf.choice("hidden_act", "silu", layers.ACTIVATIONS),
        "gated_mlp": True,
        "norm": "rms",
        "norm_epsilon": hf.number("rms_norm_eps", epsilon),
        "qkv_bias": False,
        "out_bias": False,
        "mlp_bias": False,
        "tied_head": hf.switch("tie_word_embeddings", False),
    }
    return config_lib.DecoderConfig(**shared | different)


def head_size(hf: config_lib.Fields) -> int:
    """Return the size of a head. Without `head_dim` the heads share the width."""
    width = hf.size("hidden_size")
    heads = hf.size("num_attention_heads")
    return hf.size("head_dim", width // heads if width % heads == 0 else None)


def attention_biases(hf: config_lib.Fields) -> dict[str, Any]:
    """Return the biases of attention, for families with a single switch for all four products."""
    return dict.fromkeys(("qkv_bias", "out_bias"), hf.switch("attention_bias", False))


def rotations_of(hf: config_lib.Fields, theta: float) -> Rope:
    """Return rotary positions that are the same in all layers and turn whole heads; `theta` is the default base."""
    given = config_lib.rotary_parameters(hf, theta)
    context = hf.size("max_position_embeddings")
    config_lib.refuse_partial_rotation(given)
    original = hf.value("original_max_position_embeddings") and hf.size("original_max_position_embeddings")
    table, context = config_lib.rotary_frequencies(given, head_size(hf), context, original)
    return (table,), context


def _require_full_attention(hf: config_lib.Fields) -> None:
    """Raise UserError if a layer has a window. Without a window, its size and first layer have no effect."""
    hf.require("use_sliding_window", False)
    hf.per_layer("layer_types", hf.size("num_hidden_layers"), ("full_attention",))
    for unused in ("sliding_window", "max_window_layers"):
        hf.value(unused)


def _llama(hf: config_lib.Fields) -> config_lib.DecoderConfig:
    """Read Llama 2 and 3, and SmolLM2."""
    hf.value("pretraining_tp")  # The number of parts in which products were computed in training: the same products.
    heads = hf.size("num_attention_heads")  # The first Llama's files lack the number of key heads.
    biases = {**attention_biases(hf), "mlp_bias": hf.switch("mlp_bias", False)}
    return config_from_hf(hf, kv_heads=heads, **biases)


def _mistral(hf: config_lib.Fields) -> config_lib.DecoderConfig:
    """Read Mistral, whose first version has a window in every layer."""
    has_window = "sliding_window" not in hf.values or hf.value("sliding_window") is not None  # Absent, it is 4,096.
    every_layer = (hf.size("sliding_window", 4096),) * hf.size("num_hidden_layers") if has_window else ()
    return config_from_hf(hf, windows=every_layer)


def _qwen2(hf: config_lib.Fields) -> config_lib.DecoderConfig:
    """Read Qwen2 and Qwen2.5: biases on queries, keys and values. The vocabulary is padded, differently by size."""
    _require_full_attention(hf)
    return config_from_hf(hf, qkv_bias=True)


def _qwen3(hf: config_lib.Fields) -> config_lib.DecoderConfig:
    """Read Qwen3, which normalises queries and keys within each head. The heads need not share the width."""
    _require_full_attention(hf)
    hf.size("head_dim")
    return config_from_hf(hf, qk_norm="head", **attention_biases(hf))


def _olmo2(hf: config_lib.Fields) -> config_lib.DecoderConfig:
    """Read OLMo 2, which normalises the outputs of attention and MLP, and queries and keys across heads."""
    different: dict[str, Any] = {"norm_positions": (config_lib.OUTPUT,), "qk_norm": "all", **attention_biases(hf)}
    return config_from_hf(hf, kv_heads=hf.size("num_attention_heads"), epsilon=1e-5, **different)


def _phi3(hf: config_lib.Fields) -> config_lib.DecoderConfig:
    """Read Phi-3 and Phi-4: LongRoPE for long contexts, fused projections."""
    given = config_lib.rotary_parameters(hf, 1e4)
    context = hf.size("max_position_embeddings")
    if given.value("rope_type", given.value("type")) == "yarn":  # An older name in this family.
        given = config_lib.Fields({**given.values, "rope_type": "longrope"}, hf.path)
    original = hf.size("original_max_position_embeddings", 4096)
    table, context = config_lib.rotary_frequencies(given, head_size(hf), context, original)
    for switch in ("attention_bias", "mlp_bias", "lm_head_bias"):
        hf.require(switch, False)
    for number in ("full_attn_mod", "interpolate_factor"):  # Phi-4-mini's.
        hf.require(number, 1)
    has_window = hf.value("sliding_window") is not None
    every_layer = (hf.size("sliding_window"),) * hf.size("num_hidden_layers") if has_window else ()
    different: dict[str, Any] = {"rotations": ((table,), context), "windows": every_layer}
    return config_from_hf(hf, kv_heads=hf.size("num_attention_heads"), epsilon=1e-5, **different)


def _smollm3(hf: config_lib.Fields) -> config_lib.DecoderConfig:
    """Read SmolLM3, which has no positions in every fourth layer."""
    _require_full_attention(hf)
    hf.value("pretraining_tp")  # Left over from Llama.
    num_layers = hf.size("num_hidden_layers")
    interval = hf.size("no_rope_layer_interval", 4)
    default = [int((layer + 1) % interval != 0) for layer in range(num_layers)]
    has_positions = hf.per_layer("no_rope_layers", num_layers, (0, 1)) or default
    (table,), context = rotations_of(hf, 2e6)
    different: dict[str, Any] = {
        "rotations": ((table, config_lib.Frequencies((0.0,) * len(table.radians))), context),
        "layer_rotary": tuple(0 if positions else 1 for positions in has_positions),
        "mlp_bias": hf.switch("mlp_bias", False),
        "tied_head": hf.switch("tie_word_embeddings", True),
        **attention_biases(hf),
    }
    return config_from_hf(hf, **different)


def _gemma3(hf: config_lib.Fields) -> config_lib.DecoderConfig:
    """Read Gemma 3: four norms that scale by 1 + their weight, scaled embeddings, windows in most layers.

    Queries and keys are normalised, and the layers without a window turn more slowly.
    """
    hf.require("attn_logit_softcapping", None)
    hf.require("final_logit_softcapping", None)
    hf.size("head_dim")
    kinds = _layer_kinds(hf)
    windows = tuple(hf.size("sliding_window") if kind == _SLIDING else 0 for kind in kinds)
    bidirectional = hf.switch("use_bidirectional_attention", False)
    if bidirectional:  # Half of the window is before a token, half after it.
        windows = tuple(window and window // 2 + 1 for window in windows)
    different: dict[str, Any] = {
        "rotations": _gemma3_rotations(hf),
        # `hidden_act` is an older name, without effect.
        "activation": hf.choice("hidden_activation", "gelu_pytorch_tanh", layers.ACTIVATIONS),
        "tied_head": hf.switch("tie_word_embeddings", True),
        "windows": windows,
        "bidirectional": bidirectional,
        "layer_rotary": tuple(_LAYER_TYPES.index(kind) for kind in kinds),
        "norm": "rms_plus_one",
        "norm_positions": (config_lib.BEFORE, config_lib.OUTPUT),
        "qk_norm": "head",
        "attention_scale": hf.number("query_pre_attn_scalar", 256) ** -0.5,
        "embed_scale": hf.size("hidden_size") ** 0.5,
        **attention_biases(hf),
    }
    return config_from_hf(hf, **different)


def _layer_kinds(hf: config_lib.Fields) -> list[str]:
    """Return the kind of each layer; without `layer_types`, one layer in `sliding_window_pattern` has no window."""
    num_layers = hf.size("num_hidden_layers")
    pattern = hf.size("sliding_window_pattern", hf.size("_sliding_window_pattern", 6))
    hf.value("sliding_window")  # It has no effect if no layer has a window.
    default = [_FULL if layer % pattern == 0 else _SLIDING for layer in range(1, num_layers + 1)]
    return hf.per_layer("layer_types", num_layers, _LAYER_TYPES) or default


def _gemma3_rotations(hf: config_lib.Fields) -> Rope:
    """Return one table for layers with a window, one for the others. Only the latter is scaled."""
    nested = config_lib.Fields(hf.table("rope_parameters") or {}, hf.path, "rope_parameters.")
    if not set(nested.values) <= set(_LAYER_TYPES):
        raise hf.wrong("rope_parameters", f"{', '.join(nested.values)}, and not {', '.join(_LAYER_TYPES)}")
    given = {
        _SLIDING: {"rope_theta": hf.number("rope_local_base_freq", 1e4)},
        _FULL: {"rope_theta": hf.number("rope_theta", 1e6), **(hf.table("rope_scaling") or {})},
    }
    size = head_size(hf)
    context = hf.size("max_position_embeddings")
    tables = []
    for kind in _LAYER_TYPES:
        parameters = config_lib.Fields({**given[kind], **(nested.table(kind) or {})}, hf.path)
        config_lib.refuse_partial_rotation(parameters)
        tables.append(config_lib.rotary_frequencies(parameters, size, context))
    return tuple(table for table, _ in tables), min(context for _, context in tables)


LAYER = "layers.{layer}."
SELF = LAYER + "self_attn."
OUTSIDE_RULES = (
    NameRule("embed_tokens.weight", "tokens", "v e -> v e"),
    *weight_names.norm("norm", "final_norm"),
    weight_names.HEAD,
)
NORM_RULES = (
    *weight_names.norm(LAYER + "input_layernorm", "blocks.attention_norm"),
    *weight_names.norm(LAYER + "post_attention_layernorm", "blocks.mlp_norm"),
)
PART_RULES = (
    *weight_names.attention(SELF + "q_proj", SELF + "k_proj", SELF + "v_proj", SELF + "o_proj"),
    *weight_names.dense(LAYER + "mlp.gate_proj", "blocks.mlp.gate_up", "(n f) d -> d n f", 0),
    *weight_names.dense(LAYER + "mlp.up_proj", "blocks.mlp.gate_up", "(n f) d -> d n f", 1),
    *weight_names.dense(LAYER + "mlp.down_proj", "blocks.mlp.down", "d f -> f d"),
)
HEAD_NORM_RULES = (
    *weight_names.norm(SELF + "q_norm", "blocks.attention.q_norm", "k -> k"),
    *weight_names.norm(SELF + "k_norm", "blocks.attention.k_norm", "k -> k"),
)


def table(*rules: NameRule) -> weight_names.NameTable:
    """Return a table of these rules. Old files also hold the frequencies of rotary positions."""
    buffers = r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq"
    return weight_names.NameTable(rules=rules, prefixes=("model.",), buffers=buffers)


TABLE = table(*OUTSIDE_RULES, *NORM_RULES, *PART_RULES)
_OLMO2_TABLE = table(
    *OUTSIDE_RULES,
    *PART_RULES,
    *weight_names.norm(LAYER + "post_attention_layernorm", "blocks.attention_output_norm"),
    *weight_names.norm(LAYER + "post_feedforward_layernorm", "blocks.mlp_output_norm"),
    *weight_names.norm(SELF + "q_norm", "blocks.attention.q_norm", "(h k) -> h k"),
    *weight_names.norm(SELF + "k_norm", "blocks.attention.k_norm", "(g k) -> g k"),
)
_PHI3_TABLE = table(
    *OUTSIDE_RULES,
    *NORM_RULES,
    *weight_names.fused_attention(SELF + "qkv_proj", "(n j k) d -> d n j k", ("h", "g", "g")),
    *weight_names.dense(SELF + "o_proj", "blocks.attention.out", "d (h k) -> h k d"),
    *weight_names.dense(LAYER + "mlp.gate_up_proj", "blocks.mlp.gate_up", "(n j) d -> d n j", 0, ("f", "f"), 0),
    *weight_names.dense(LAYER + "mlp.gate_up_proj", "blocks.mlp.gate_up", "(n j) d -> d n j", 1, ("f", "f"), 1),
    *weight_names.dense(LAYER + "mlp.down_proj", "blocks.mlp.down", "d f -> f d"),
)
_GEMMA3_TABLE = table(
    *OUTSIDE_RULES,
    *PART_RULES,
    *weight_names.norm(LAYER + "input_layernorm", "blocks.attention_norm"),
    *weight_names.norm(LAYER + "post_attention_layernorm", "blocks.attention_output_norm"),
    *weight_names.norm(LAYER + "pre_feedforward_layernorm", "blocks.mlp_norm"),
    *weight_names.norm(LAYER + "post_feedforward_layernorm", "blocks.mlp_output_norm"),
    *HEAD_NORM_RULES,
)
FAMILIES = (
    Family("llama", _llama, TABLE),
    Family("mistral", _mistral, TABLE),
    Family("qwen2", _qwen2, TABLE),
    Family("qwen3", _qwen3, table(*TABLE.rules, *HEAD_NORM_RULES)),
    Family("olmo2", _olmo2, _OLMO2_TABLE),
    Family("phi3", _phi3, _PHI3_TABLE),
    Family("smollm3", _smollm3, TABLE),
    Family("gemma3_text", _gemma3, _GEMMA3_TABLE),
)
