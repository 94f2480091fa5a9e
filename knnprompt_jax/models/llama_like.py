"""What the families around Llama have in common: how their config.json says it, and the names of their weights.

RMSNorm before each part, rotary positions, grouped keys and values, a gated MLP. A family's file says what is different.
"""

from typing import Any

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import conversion, hf_config, layers, names, rope_config, rotary
from knnprompt_jax.models.conversion import NameRule

# Tables of frequencies, and the context in tokens that they serve.
Rope = tuple[tuple[rotary.Frequencies, ...], int]
SLIDING, FULL = LAYER_TYPES = ("sliding_attention", "full_attention")


def config_from_hf(
    hf: hf_config.Fields,
    family: str,
    *,
    rope: Rope | None = None,
    kv_heads: int | None = None,
    tied_head: bool = False,
    activation_key: str = "hidden_act",
    activation: str = "silu",
    epsilon: float = 1e-6,
    **different: Any,
) -> config_lib.DecoderConfig:
    """The decoder of a config.json with a family's defaults for keys that older files leave out, and what is different in it.

    Sizes must be there, `num_key_value_heads` among them unless `kv_heads` says what it is then.

    Raises:
        UserError: a switch that changes the model and is not supported here, or a size that is missing or wrong.
    """
    width, heads = hf.size("hidden_size"), hf.size("num_attention_heads")
    size = head_size(hf)
    tables, context = rope or rope_of(hf, 1e4)
    values = {
        "family": family,
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
        "activation": hf.choice(activation_key, activation, layers.ACTIVATIONS),
        "gated_mlp": True,
        "norm": "rms",
        "norm_epsilon": hf.number("rms_norm_eps", epsilon),
        "qkv_bias": False,
        "out_bias": False,
        "mlp_bias": False,
        "tied_head": hf.switch("tie_word_embeddings", tied_head),
    }
    return config_lib.DecoderConfig(**values | different)


def attention_biases(hf: hf_config.Fields) -> dict[str, Any]:
    """The biases, where a single switch is for all four products of attention."""
    return dict.fromkeys(("qkv_bias", "out_bias"), hf.switch("attention_bias", False))


def rope_of(hf: hf_config.Fields, theta: float) -> Rope:
    """The rotary positions of a model whose layers all turn alike, and their whole heads; `theta` is the base where the file has none."""
    parameters, context = rope_config.parameters(hf, theta), hf.size("max_position_embeddings")
    rope_config.refuse_partial(parameters)
    original = hf.value("original_max_position_embeddings") and hf.size("original_max_position_embeddings")
    table, context = rope_config.frequencies(parameters, head_size(hf), context, original)
    return (rope_config.divided(table, hf.value("rope_factors")),), context


def head_size(hf: hf_config.Fields) -> int:
    """The size of a head; where the file leaves it out, heads share the width."""
    width, heads = hf.size("hidden_size"), hf.size("num_attention_heads")
    return hf.size("head_dim", width // heads if width % heads == 0 else None)


def windows(hf: hf_config.Fields, default: list[str]) -> tuple[int, ...]:
    """The window of each layer in tokens, 0 where it reads everything; `default` is the pattern where the file has no
    `layer_types`. Empty if no layer has a window."""
    kinds = hf.per_layer("layer_types", hf.size("num_hidden_layers"), LAYER_TYPES) or default
    if SLIDING not in kinds:
        hf.value("sliding_window")  # Means nothing then.
        return ()
    return tuple(hf.size("sliding_window") if kind == SLIDING else 0 for kind in kinds)


def switched_windows(hf: hf_config.Fields, default: list[str]) -> tuple[int, ...]:
    """The same where `use_sliding_window` must switch them on."""
    if hf.switch("use_sliding_window", False) and hf.value("sliding_window") is not None:
        return windows(hf, default)
    if SLIDING in (hf.per_layer("layer_types", hf.size("num_hidden_layers"), LAYER_TYPES) or ()):
        raise hf.wrong("layer_types", f"{SLIDING}, but use_sliding_window is not true, or there is no sliding_window")
    hf.value("sliding_window")  # Means nothing then.
    return ()


def qwen_windows(hf: hf_config.Fields) -> tuple[int, ...]:
    """Those of Qwen: in layers from `max_window_layers` on."""
    first = hf.value("max_window_layers", 28)
    if type(first) is not int or first < 0:
        raise hf.wrong("max_window_layers", f"{first!r} is not a whole number")
    if hf.switch("use_sliding_window", False) and not hf.has("sliding_window"):
        raise hf.wrong("sliding_window", "missing")
    return switched_windows(hf, [SLIDING if layer >= first else FULL for layer in range(hf.size("num_hidden_layers"))])


def shape(
    family: str, width: int, layers: int, heads: int, kv_heads: int, mlp: int, vocab: int, context: int, **others: Any
) -> hf_config.Json:
    """What the config.json of a published size says of its shape."""
    sizes = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads, "intermediate_size": mlp}
    sizes |= {"num_key_value_heads": kv_heads, "vocab_size": vocab, "max_position_embeddings": context}
    return {"model_type": family, **sizes, **others}


LAYER = "layers.{layer}."
SELF = LAYER + "self_attn."
NORM_RULES = (
    *names.norm(LAYER + "input_layernorm", "blocks.attention_norm"),
    *names.norm(LAYER + "post_attention_layernorm", "blocks.mlp_norm"),
)
OUTSIDE_RULES = (
    NameRule("embed_tokens.weight", "tokens", "v e -> v e"),
    *names.norm("norm", "final_norm"),
    names.HEAD,
)
PART_RULES = (
    *names.attention(SELF + "q_proj", SELF + "k_proj", SELF + "v_proj", SELF + "o_proj"),
    *names.dense(LAYER + "mlp.gate_proj", "blocks.mlp.gate_up", "(n f) d -> d n f", 0),
    *names.dense(LAYER + "mlp.up_proj", "blocks.mlp.gate_up", "(n f) d -> d n f", 1),
    *names.dense(LAYER + "mlp.down_proj", "blocks.mlp.down", "d f -> f d"),
)
HEAD_NORM_RULES = (
    *names.norm(SELF + "q_norm", "blocks.attention.q_norm", "k -> k"),
    *names.norm(SELF + "k_norm", "blocks.attention.k_norm", "k -> k"),
)


def table(*rules: NameRule) -> conversion.NameTable:
    """The table of a family that names its weights by these rules. Old files hold the frequencies of rotary positions too."""
    buffers = r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq"
    return conversion.NameTable(rules=rules, prefixes=("model.",), buffers=buffers)


TABLE = table(*OUTSIDE_RULES, *NORM_RULES, *PART_RULES)
