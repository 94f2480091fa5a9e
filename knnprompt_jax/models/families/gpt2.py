"""GPT-2: LayerNorm, learned positions, a plain MLP."""

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import layers
from knnprompt_jax.models.families import Family, weight_names
from knnprompt_jax.models.families.weight_names import NameRule


def _config_from_hf(hf: config_lib.Fields) -> config_lib.DecoderConfig:
    hf.require("add_cross_attention", False)
    hf.require("scale_attn_weights", True)
    hf.require("scale_attn_by_inverse_layer_idx", False)
    width = hf.size("n_embd", 768)
    return config_lib.DecoderConfig.with_equal_heads(
        family=hf.value("model_type"),
        vocab_size=hf.size("vocab_size", 50257),
        width=width,
        num_layers=hf.size("n_layer", 12),
        num_heads=hf.divisor("n_head", width, 12),
        mlp_width=hf.size("n_inner", 4 * width),
        num_positions=hf.size("n_positions", 1024),
        activation=hf.choice("activation_function", "gelu_new", layers.ACTIVATIONS),
        norm_epsilon=hf.number("layer_norm_epsilon", 1e-5),
        tied_head=hf.switch("tie_word_embeddings", True),
    )


_LAYER = "h.{layer}."
# PyTorch's Conv1D stores kernels as (in, out). Queries, keys and values follow one another, with equally many heads.
_TABLE = weight_names.NameTable(
    prefixes=("transformer.",),
    buffers=r"h\.\d+\.attn\.(bias|masked_bias)",
    rules=(
        NameRule("wte.weight", "tokens", "v e -> v e"),
        NameRule("wpe.weight", "positions", "m d -> m d"),
        *weight_names.norm(_LAYER + "ln_1", "blocks.attention_norm"),
        *weight_names.fused_attention(_LAYER + "attn.c_attn", "d (n j k) -> d n j k", ("h", "h", "h")),
        *weight_names.dense(_LAYER + "attn.c_proj", "blocks.attention.out", "(h k) d -> h k d"),
        *weight_names.norm(_LAYER + "ln_2", "blocks.mlp_norm"),
        *weight_names.dense(_LAYER + "mlp.c_fc", "blocks.mlp.up", "d f -> d f"),
        *weight_names.dense(_LAYER + "mlp.c_proj", "blocks.mlp.down", "f d -> f d"),
        *weight_names.norm("ln_f", "final_norm"),
        weight_names.HEAD,
    ),
)
FAMILIES = (Family("gpt2", _config_from_hf, _TABLE),)
