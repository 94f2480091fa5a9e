"""GPT-2: what its config.json means, its published sizes and the names of its weights."""

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import conversion, hf_config, layers
from knnprompt_jax.models.conversion import Rule


def config_from_hf(hf: hf_config.Fields) -> config_lib.DecoderConfig:
    """The decoder that a config.json describes; absent keys take the values `transformers` gives them.

    Raises:
        UserError: a switch that changes the model and is not supported here, or a size that is none.
    """
    hf.require("add_cross_attention", False)
    width = hf.size("n_embd", 768)
    heads = hf.divisor("n_head", width, 12)
    return config_lib.DecoderConfig(
        family="gpt2",
        vocab_size=hf.size("vocab_size", 50257),
        width=width,
        num_layers=hf.size("n_layer", 12),
        num_heads=heads,
        num_kv_heads=heads,
        head_size=width // heads,
        mlp_width=hf.size("n_inner", 4 * width),
        num_positions=hf.size("n_positions", 1024),
        embed_width=width,
        attention_scale=(width // heads) ** -0.5 if hf.switch("scale_attn_weights", True) else 1.0,
        activation=hf.choice("activation_function", "gelu_new", layers.ACTIVATIONS),
        norm_epsilon=hf.number("layer_norm_epsilon", 1e-5),
        scale_by_layer=hf.switch("scale_attn_by_inverse_layer_idx", False),
        tied_head=hf.switch("tie_word_embeddings", True),
    )


def _published(width: int, num_layers: int, num_heads: int) -> hf_config.Json:
    return {"model_type": "gpt2", "n_embd": width, "n_layer": num_layers, "n_head": num_heads}


PUBLISHED = {
    "distilgpt2": _published(768, 6, 12),
    "gpt2": _published(768, 12, 12),
    "gpt2-medium": _published(1024, 24, 16),
    "gpt2-large": _published(1280, 36, 20),
    "gpt2-xl": _published(1600, 48, 25),
}
_FUSED = ("h", "h", "h")  # Heads of queries, keys and values, one after the other in one tensor.

# PyTorch's Conv1D keeps its weights (in, out).
TABLE = conversion.Table(
    prefixes=("transformer.",),
    buffers=r"h\.\d+\.attn\.(bias|masked_bias)",
    rules=(
        Rule("wte.weight", "tokens", "v e -> v e"),
        Rule("wpe.weight", "positions", "m d -> m d"),
        Rule("h.{layer}.ln_1.weight", "blocks.attention_norm.scale", "d -> d"),
        Rule("h.{layer}.ln_1.bias", "blocks.attention_norm.bias", "d -> d"),
        Rule(
            "h.{layer}.attn.c_attn.weight", "blocks.attention.q_kernel", "d (n j k) -> d n j k", fused=_FUSED, segment=0
        ),
        Rule(
            "h.{layer}.attn.c_attn.weight",
            "blocks.attention.kv_kernel",
            "d (n j k) -> d n j k",
            0,
            fused=_FUSED,
            segment=1,
        ),
        Rule(
            "h.{layer}.attn.c_attn.weight",
            "blocks.attention.kv_kernel",
            "d (n j k) -> d n j k",
            1,
            fused=_FUSED,
            segment=2,
        ),
        Rule("h.{layer}.attn.c_attn.bias", "blocks.attention.q_bias", "(n j k) -> n j k", fused=_FUSED, segment=0),
        Rule("h.{layer}.attn.c_attn.bias", "blocks.attention.kv_bias", "(n j k) -> n j k", 0, fused=_FUSED, segment=1),
        Rule("h.{layer}.attn.c_attn.bias", "blocks.attention.kv_bias", "(n j k) -> n j k", 1, fused=_FUSED, segment=2),
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
        Rule("lm_head.weight", "head_rows", "v e -> v e", prefixed=False),
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
        Rule(
            "h.{layer}.attn.c_attn.kernel", "blocks.attention.q_kernel", "(n j k) d -> d n j k", fused=_FUSED, segment=0
        ),
        Rule(
            "h.{layer}.attn.c_attn.kernel",
            "blocks.attention.kv_kernel",
            "(n j k) d -> d n j k",
            0,
            fused=_FUSED,
            segment=1,
        ),
        Rule(
            "h.{layer}.attn.c_attn.kernel",
            "blocks.attention.kv_kernel",
            "(n j k) d -> d n j k",
            1,
            fused=_FUSED,
            segment=2,
        ),
        Rule("h.{layer}.attn.c_attn.bias", "blocks.attention.q_bias", "(n j k) -> n j k", fused=_FUSED, segment=0),
        Rule("h.{layer}.attn.c_attn.bias", "blocks.attention.kv_bias", "(n j k) -> n j k", 0, fused=_FUSED, segment=1),
        Rule("h.{layer}.attn.c_attn.bias", "blocks.attention.kv_bias", "(n j k) -> n j k", 1, fused=_FUSED, segment=2),
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
        Rule("lm_head.kernel", "head_rows", "e v -> v e", prefixed=False),
    ),
)
