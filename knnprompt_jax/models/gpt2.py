"""GPT-2: what its config.json means, its published sizes and the names of its weights."""

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import conversion, hf_config, layers
from knnprompt_jax.models.conversion import Rule


def config_from_hf(hf: hf_config.Json) -> config_lib.DecoderConfig:
    """The decoder that a config.json describes; absent keys take the values `transformers` gives them.

    Raises:
        UserError: a switch that changes the model and is not supported here, or a size that is none.
    """
    hf_config.require(hf, "add_cross_attention", False)
    width = hf_config.size(hf, "n_embd", 768)
    return config_lib.DecoderConfig(
        family="gpt2",
        vocab_size=hf_config.size(hf, "vocab_size", 50257),
        width=width,
        num_layers=hf_config.size(hf, "n_layer", 12),
        num_heads=hf_config.divisor(hf, "n_head", 12, width),
        mlp_width=hf_config.size(hf, "n_inner", 4 * width),
        num_positions=hf_config.size(hf, "n_positions", 1024),
        embed_width=width,
        activation=hf_config.choice(hf, "activation_function", "gelu_new", layers.ACTIVATIONS),
        norm_epsilon=hf_config.number(hf, "layer_norm_epsilon", 1e-5),
        scale_by_layer=hf_config.switch(hf, "scale_attn_by_inverse_layer_idx", False),
        scale_by_head=hf_config.switch(hf, "scale_attn_weights", True),
        tied_head=hf_config.switch(hf, "tie_word_embeddings", True),
    )


def _published(width: int, num_layers: int, num_heads: int) -> config_lib.DecoderConfig:
    return config_from_hf({"n_embd": width, "n_layer": num_layers, "n_head": num_heads})


PUBLISHED = {
    "distilgpt2": _published(768, 6, 12),
    "gpt2": _published(768, 12, 12),
    "gpt2-medium": _published(1024, 24, 16),
    "gpt2-large": _published(1280, 36, 20),
    "gpt2-xl": _published(1600, 48, 25),
}

# PyTorch's Conv1D keeps its weights (in, out).
TABLE = conversion.Table(
    prefixes=("transformer.",),
    buffers=r"h\.\d+\.attn\.(bias|masked_bias)",
    rules=(
        Rule("wte.weight", "tokens", "v e -> v e"),
        Rule("wpe.weight", "positions", "m d -> m d"),
        Rule("h.{layer}.ln_1.weight", "blocks.attention_norm.scale", "d -> d"),
        Rule("h.{layer}.ln_1.bias", "blocks.attention_norm.bias", "d -> d"),
        Rule("h.{layer}.attn.c_attn.weight", "blocks.attention.qkv_kernel", "d (n h k) -> d n h k"),
        Rule("h.{layer}.attn.c_attn.bias", "blocks.attention.qkv_bias", "(n h k) -> n h k"),
        Rule("h.{layer}.attn.c_proj.weight", "blocks.attention.out_kernel", "(h k) d -> h k d"),
        Rule("h.{layer}.attn.c_proj.bias", "blocks.attention.out_bias", "d -> d"),
        Rule("h.{layer}.ln_2.weight", "blocks.mlp_norm.scale", "d -> d"),
        Rule("h.{layer}.ln_2.bias", "blocks.mlp_norm.bias", "d -> d"),
        Rule("h.{layer}.mlp.c_fc.weight", "blocks.mlp.up_kernel", "d f -> d f"),
        Rule("h.{layer}.mlp.c_fc.bias", "blocks.mlp.up_bias", "f -> f"),
        Rule("h.{layer}.mlp.c_proj.weight", "blocks.mlp.down_kernel", "f d -> f d"),
        Rule("h.{layer}.mlp.c_proj.bias", "blocks.mlp.down_bias", "d -> d"),
        Rule("ln_f.weight", "final_norm.scale", "d -> d"),
        Rule("ln_f.bias", "final_norm.bias", "d -> d"),
        Rule("lm_head.weight", "head", "v e -> v e", prefixed=False),
    ),
)

# Flax GPT-2 keeps its kernels (out, in), all but the head's.
FLAX_TABLE = conversion.Table(
    prefixes=("transformer.",),
    buffers=r"h\.\d+\.attn\.bias",
    rules=(
        Rule("wte.embedding", "tokens", "v e -> v e"),
        Rule("wpe.embedding", "positions", "m d -> m d"),
        Rule("h.{layer}.ln_1.scale", "blocks.attention_norm.scale", "d -> d"),
        Rule("h.{layer}.ln_1.bias", "blocks.attention_norm.bias", "d -> d"),
        Rule("h.{layer}.attn.c_attn.kernel", "blocks.attention.qkv_kernel", "(n h k) d -> d n h k"),
        Rule("h.{layer}.attn.c_attn.bias", "blocks.attention.qkv_bias", "(n h k) -> n h k"),
        Rule("h.{layer}.attn.c_proj.kernel", "blocks.attention.out_kernel", "d (h k) -> h k d"),
        Rule("h.{layer}.attn.c_proj.bias", "blocks.attention.out_bias", "d -> d"),
        Rule("h.{layer}.ln_2.scale", "blocks.mlp_norm.scale", "d -> d"),
        Rule("h.{layer}.ln_2.bias", "blocks.mlp_norm.bias", "d -> d"),
        Rule("h.{layer}.mlp.c_fc.kernel", "blocks.mlp.up_kernel", "f d -> d f"),
        Rule("h.{layer}.mlp.c_fc.bias", "blocks.mlp.up_bias", "f -> f"),
        Rule("h.{layer}.mlp.c_proj.kernel", "blocks.mlp.down_kernel", "d f -> f d"),
        Rule("h.{layer}.mlp.c_proj.bias", "blocks.mlp.down_bias", "d -> d"),
        Rule("ln_f.scale", "final_norm.scale", "d -> d"),
        Rule("ln_f.bias", "final_norm.bias", "d -> d"),
        Rule("lm_head.kernel", "head", "e v -> v e", prefixed=False),
    ),
)
