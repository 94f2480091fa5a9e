"""OPT: learned positions that start at row 2, ReLU; OPT-350m normalises after each part and has narrower embeddings."""

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import layers
from knnprompt_jax.models.families import Family, weight_names
from knnprompt_jax.models.families.weight_names import NameRule

# Rows of the position table before position 0; a padding row and its successor in the original code.
POSITION_OFFSET = 2


def _config_from_hf(hf: config_lib.Fields) -> config_lib.DecoderConfig:
    hf.require("enable_bias", True)
    hf.require("layer_norm_elementwise_affine", True)
    width = hf.size("hidden_size", 768)
    norm_first = hf.switch("do_layer_norm_before", True)
    return config_lib.DecoderConfig.with_equal_heads(
        family=hf.value("model_type"),
        vocab_size=hf.size("vocab_size", 50272),
        width=width,
        num_layers=hf.size("num_hidden_layers", 12),
        num_heads=hf.divisor("num_attention_heads", width, 12),
        mlp_width=hf.size("ffn_dim", 3072),
        num_positions=hf.size("max_position_embeddings", 2048),
        embed_width=hf.size("word_embed_proj_dim", width),
        position_offset=POSITION_OFFSET,
        activation=hf.choice("activation_function", "relu", layers.ACTIVATIONS),
        norm_positions=(config_lib.BEFORE if norm_first else config_lib.AFTER,),
        final_norm=not hf.switch("_remove_final_layer_norm", False) and norm_first,
        tied_head=hf.switch("tie_word_embeddings", True),
    )


_LAYER = "layers.{layer}."
_SELF = _LAYER + "self_attn."
_TABLE = weight_names.NameTable(
    prefixes=("model.decoder.", "decoder."),
    buffers=r"version",
    rules=(
        NameRule("embed_tokens.weight", "tokens", "v e -> v e"),
        NameRule("embed_positions.weight", "positions", "m d -> m d"),
        NameRule("project_in.weight", "project_in", "d e -> e d"),
        NameRule("project_out.weight", "project_out", "e d -> d e"),
        *weight_names.norm(_LAYER + "self_attn_layer_norm", "blocks.attention_norm"),
        *weight_names.attention(_SELF + "q_proj", _SELF + "k_proj", _SELF + "v_proj", _SELF + "out_proj"),
        *weight_names.norm(_LAYER + "final_layer_norm", "blocks.mlp_norm"),
        *weight_names.dense(_LAYER + "fc1", "blocks.mlp.up", "f d -> d f"),
        *weight_names.dense(_LAYER + "fc2", "blocks.mlp.down", "d f -> f d"),
        *weight_names.norm("final_layer_norm", "final_norm"),
        weight_names.HEAD,
    ),
)
FAMILIES = (Family("opt", _config_from_hf, _TABLE),)
