"""Phi-1, 1.5 and 2: one LayerNorm for attention and MLP side by side, rotary positions on a part of the head, a bias on the head."""

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import conversion, hf_config, layers, llama_like, rope_config
from knnprompt_jax.models.conversion import Rule


def config_from_hf(hf: hf_config.Fields) -> config_lib.DecoderConfig:
    """The decoder that a config.json describes.

    Raises:
        UserError: a switch that changes the model and is not supported here, a size that is none, or one that is missing.
    """
    width = hf.size("hidden_size")
    heads = hf.divisor("num_attention_heads", width)
    parameters = rope_config.parameters(hf, 1e4, 0.5)
    table, context = rope_config.frequencies(parameters, width // heads, hf.size("max_position_embeddings"))
    hf.require("qk_layernorm", False)
    return config_lib.DecoderConfig(
        family="phi",
        vocab_size=hf.size("vocab_size"),
        width=width,
        num_layers=hf.size("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=hf.divisor("num_key_value_heads", heads, heads),
        head_size=width // heads,
        mlp_width=hf.size("intermediate_size"),
        num_positions=context,
        embed_width=width,
        attention_scale=(width // heads) ** -0.5,
        position_table=False,
        rotary=(table,),
        activation=hf.choice("hidden_act", "gelu_new", layers.ACTIVATIONS),
        parallel_residual=True,
        norm_places=(config_lib.BEFORE_BOTH,),
        norm_epsilon=hf.number("layer_norm_eps", 1e-5),
        head_bias=True,
        tied_head=hf.switch("tie_word_embeddings", False),
    )


PUBLISHED = {
    "microsoft/phi-1_5": llama_like.shape("phi", 2048, 24, 32, 32, 8192, 51200, 2048, partial_rotary_factor=0.5),
    "microsoft/phi-2": llama_like.shape("phi", 2560, 32, 32, 32, 10240, 51200, 2048, partial_rotary_factor=0.4),
}

_LAYER = "layers.{layer}."
_SELF = _LAYER + "self_attn."
TABLE = conversion.Table(
    prefixes=("model.",),
    buffers=r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq",
    rules=(
        Rule("embed_tokens.weight", "tokens", "v e -> v e"),
        *(rule for rule in llama_like.ATTENTION_RULES if ".o_proj." not in rule.theirs),
        Rule(_SELF + "dense.weight", "blocks.attention.out_kernel", "d (h k) -> h k d"),
        Rule(_SELF + "dense.bias", "blocks.attention.out_bias", "d -> d"),
        Rule(_LAYER + "input_layernorm.weight", "blocks.input_norm.scale", "d -> d"),
        Rule(_LAYER + "input_layernorm.bias", "blocks.input_norm.bias", "d -> d"),
        Rule(_LAYER + "mlp.fc1.weight", "blocks.mlp.up_kernel", "f d -> d f"),
        Rule(_LAYER + "mlp.fc1.bias", "blocks.mlp.up_bias", "f -> f"),
        Rule(_LAYER + "mlp.fc2.weight", "blocks.mlp.down_kernel", "d f -> f d"),
        Rule(_LAYER + "mlp.fc2.bias", "blocks.mlp.down_bias", "d -> d"),
        Rule("final_layernorm.weight", "final_norm.scale", "d -> d"),
        Rule("final_layernorm.bias", "final_norm.bias", "d -> d"),
        Rule("lm_head.weight", "head_rows", "v e -> v e", prefixed=False),
        Rule("lm_head.bias", "head_bias", "v -> v", prefixed=False),
    ),
)
