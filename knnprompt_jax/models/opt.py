"""OPT: what its config.json means, its published sizes and the names of its weights."""

from typing import Any

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import conversion, hf_config, layers
from knnprompt_jax.models.conversion import Rule

# Rows of the position table that stand before position 0; a padding row and its successor in the original code.
POSITION_OFFSET = 2


def config_from_hf(hf: hf_config.Fields) -> config_lib.DecoderConfig:
    """The decoder that a config.json describes; absent keys take the values `transformers` gives them.

    Raises:
        UserError: a switch that changes the model and is not supported here, or a size that is none.
    """
    hf.require("enable_bias", True)
    hf.require("layer_norm_elementwise_affine", True)
    width = hf.size("hidden_size", 768)
    heads = hf.divisor("num_attention_heads", width, 12)
    norm_first = hf.switch("do_layer_norm_before", True)
    return config_lib.DecoderConfig(
        family="opt",
        vocab_size=hf.size("vocab_size", 50272),
        width=width,
        num_layers=hf.size("num_hidden_layers", 12),
        num_heads=heads,
        num_kv_heads=heads,
        head_size=width // heads,
        mlp_width=hf.size("ffn_dim", 3072),
        num_positions=hf.size("max_position_embeddings", 2048),
        embed_width=hf.size("word_embed_proj_dim", width),
        attention_scale=(width // heads) ** -0.5,
        position_offset=POSITION_OFFSET,
        activation=hf.choice("activation_function", "relu", layers.ACTIVATIONS),
        norm_places=(config_lib.BEFORE if norm_first else config_lib.AFTER,),
        final_norm=not hf.switch("_remove_final_layer_norm", False) and norm_first,
        tied_head=hf.switch("tie_word_embeddings", True),
    )


def _published(width: int, num_layers: int, num_heads: int, **others: Any) -> hf_config.Json:
    widths = {"model_type": "opt", "hidden_size": width, "ffn_dim": 4 * width}
    return {**widths, "num_hidden_layers": num_layers, "num_attention_heads": num_heads, **others}


PUBLISHED = {
    "facebook/opt-125m": _published(768, 12, 12),
    "facebook/opt-350m": _published(1024, 24, 16, do_layer_norm_before=False, word_embed_proj_dim=512),
    "facebook/opt-1.3b": _published(2048, 24, 32),
    "facebook/opt-2.7b": _published(2560, 32, 32),
    "facebook/opt-6.7b": _published(4096, 32, 32),
    "facebook/opt-13b": _published(5120, 40, 40),
    "facebook/opt-30b": _published(7168, 48, 56),
    "facebook/opt-66b": _published(9216, 64, 72),
}

# PyTorch's Linear keeps its weights (out, in).
TABLE = conversion.Table(
    prefixes=("model.decoder.", "decoder."),
    buffers=r"version",
    rules=(
        Rule("embed_tokens.weight", "tokens", "v e -> v e"),
        Rule("embed_positions.weight", "positions", "m d -> m d"),
        Rule("project_in.weight", "project_in", "d e -> e d"),
        Rule("project_out.weight", "project_out", "e d -> d e"),
        Rule("layers.{layer}.self_attn_layer_norm.weight", "blocks.attention_norm.scale", "d -> d"),
        Rule("layers.{layer}.self_attn_layer_norm.bias", "blocks.attention_norm.bias", "d -> d"),
        Rule("layers.{layer}.self_attn.q_proj.weight", "blocks.attention.q_kernel", "(h k) d -> d h k"),
        Rule("layers.{layer}.self_attn.k_proj.weight", "blocks.attention.kv_kernel", "(n g k) d -> d n g k", 0),
        Rule("layers.{layer}.self_attn.v_proj.weight", "blocks.attention.kv_kernel", "(n g k) d -> d n g k", 1),
        Rule("layers.{layer}.self_attn.q_proj.bias", "blocks.attention.q_bias", "(h k) -> h k"),
        Rule("layers.{layer}.self_attn.k_proj.bias", "blocks.attention.kv_bias", "(n g k) -> n g k", 0),
        Rule("layers.{layer}.self_attn.v_proj.bias", "blocks.attention.kv_bias", "(n g k) -> n g k", 1),
        Rule("layers.{layer}.self_attn.out_proj.weight", "blocks.attention.out_kernel", "d (h k) -> h k d"),
        Rule("layers.{layer}.self_attn.out_proj.bias", "blocks.attention.out_bias", "d -> d"),
        Rule("layers.{layer}.final_layer_norm.weight", "blocks.mlp_norm.scale", "d -> d"),
        Rule("layers.{layer}.final_layer_norm.bias", "blocks.mlp_norm.bias", "d -> d"),
        Rule("layers.{layer}.fc1.weight", "blocks.mlp.up_kernel", "f d -> d f"),
        Rule("layers.{layer}.fc1.bias", "blocks.mlp.up_bias", "f -> f"),
        Rule("layers.{layer}.fc2.weight", "blocks.mlp.down_kernel", "d f -> f d"),
        Rule("layers.{layer}.fc2.bias", "blocks.mlp.down_bias", "d -> d"),
        Rule("final_layer_norm.weight", "final_norm.scale", "d -> d"),
        Rule("final_layer_norm.bias", "final_norm.bias", "d -> d"),
        Rule("lm_head.weight", "head_rows", "v e -> v e", prefixed=False),
    ),
)

# Flax's Dense keeps its kernels (in, out).
FLAX_TABLE = conversion.Table(
    prefixes=("model.decoder.", "decoder."),
    buffers=r"version",
    rules=(
        Rule("embed_tokens.embedding", "tokens", "v e -> v e"),
        Rule("embed_positions.embedding", "positions", "m d -> m d"),
        Rule("project_in.kernel", "project_in", "e d -> e d"),
        Rule("project_out.kernel", "project_out", "d e -> d e"),
        Rule("layers.{layer}.self_attn_layer_norm.scale", "blocks.attention_norm.scale", "d -> d"),
        Rule("layers.{layer}.self_attn_layer_norm.bias", "blocks.attention_norm.bias", "d -> d"),
        Rule("layers.{layer}.self_attn.q_proj.kernel", "blocks.attention.q_kernel", "d (h k) -> d h k"),
        Rule("layers.{layer}.self_attn.k_proj.kernel", "blocks.attention.kv_kernel", "d (n g k) -> d n g k", 0),
        Rule("layers.{layer}.self_attn.v_proj.kernel", "blocks.attention.kv_kernel", "d (n g k) -> d n g k", 1),
        Rule("layers.{layer}.self_attn.q_proj.bias", "blocks.attention.q_bias", "(h k) -> h k"),
        Rule("layers.{layer}.self_attn.k_proj.bias", "blocks.attention.kv_bias", "(n g k) -> n g k", 0),
        Rule("layers.{layer}.self_attn.v_proj.bias", "blocks.attention.kv_bias", "(n g k) -> n g k", 1),
        Rule("layers.{layer}.self_attn.out_proj.kernel", "blocks.attention.out_kernel", "(h k) d -> h k d"),
        Rule("layers.{layer}.self_attn.out_proj.bias", "blocks.attention.out_bias", "d -> d"),
        Rule("layers.{layer}.final_layer_norm.scale", "blocks.mlp_norm.scale", "d -> d"),
        Rule("layers.{layer}.final_layer_norm.bias", "blocks.mlp_norm.bias", "d -> d"),
        Rule("layers.{layer}.fc1.kernel", "blocks.mlp.up_kernel", "d f -> d f"),
        Rule("layers.{layer}.fc1.bias", "blocks.mlp.up_bias", "f -> f"),
        Rule("layers.{layer}.fc2.kernel", "blocks.mlp.down_kernel", "f d -> f d"),
        Rule("layers.{layer}.fc2.bias", "blocks.mlp.down_bias", "d -> d"),
        Rule("final_layer_norm.scale", "final_norm.scale", "d -> d"),
        Rule("final_layer_norm.bias", "final_norm.bias", "d -> d"),
        Rule("lm_head.kernel", "head_rows", "e v -> v e", prefixed=False),
    ),
)
