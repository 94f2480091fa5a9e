"""GPT-NeoX with Pythia, and Phi-1, 1.5 and 2: attention beside the MLP, LayerNorm, biases, partly rotated heads.

Phi has one LayerNorm for attention and MLP, and a bias on the head.
"""

from typing import Any

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import layers
from knnprompt_jax.models.families import Family, llama, weight_names
from knnprompt_jax.models.families.weight_names import NameRule


def _config_from_hf(
    hf: config_lib.Fields, parameters: config_lib.Fields, activation: str, **different: Any
) -> config_lib.DecoderConfig:
    """Return the decoder that a config.json of either family describes.

    Args:
        hf: the config.json. Its sizes are required.
        parameters: the result of `config_lib.rotary_parameters`.
        activation: the default of `hidden_act`.
        different: fields of the result that differ from a plain decoder's.
    """
    width = hf.size("hidden_size")
    heads = hf.divisor("num_attention_heads", width)
    table, context = config_lib.rotary_frequencies(parameters, width // heads, hf.size("max_position_embeddings"))
    return config_lib.DecoderConfig.with_equal_heads(
        family=hf.value("model_type"),
        vocab_size=hf.size("vocab_size"),
        width=width,
        num_layers=hf.size("num_hidden_layers"),
        num_heads=heads,
        mlp_width=hf.size("intermediate_size"),
        num_positions=context,
        position_table=False,
        rotary=(table,),
        activation=hf.choice("hidden_act", activation, layers.ACTIVATIONS),
        norm_epsilon=hf.number("layer_norm_eps", 1e-5),
        tied_head=hf.switch("tie_word_embeddings", False),
        **different,
    )


def _gpt_neox(hf: config_lib.Fields) -> config_lib.DecoderConfig:
    hf.value("is_decoder")  # Every model is a decoder, whatever this says.
    parameters = config_lib.rotary_parameters(hf, 1e4, 0.25, ("rotary_emb_base", "rotary_pct"))
    for key in ("rope_theta", "partial_rotary_factor"):  # Older `transformers` saves them under these names too.
        older = parameters.value(key)
        if hf.value(key, older) != older:
            raise hf.wrong(key, f"its older name has {older}")
    biases = dict.fromkeys(("qkv_bias", "out_bias"), hf.switch("attention_bias", True))
    is_parallel = hf.switch("use_parallel_residual", True)
    return _config_from_hf(hf, parameters, "gelu", parallel_residual=is_parallel, **biases)


def _phi(hf: config_lib.Fields) -> config_lib.DecoderConfig:
    hf.require("qk_layernorm", False)
    heads = hf.size("num_attention_heads")
    hf.require("head_dim", hf.size("hidden_size") // heads)
    different: dict[str, Any] = {
        "num_kv_heads": hf.divisor("num_key_value_heads", heads, heads),
        "norm_positions": (config_lib.BEFORE_BOTH,),
        "parallel_residual": True,
        "head_bias": True,
    }
    return _config_from_hf(hf, config_lib.rotary_parameters(hf, 1e4, 0.5), "gelu_new", **different)


_LAYER = llama.LAYER
_TABLE = weight_names.NameTable(
    prefixes=("gpt_neox.",),
    buffers=r"layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)",
    endings={"lm_head.weight": "embed_out.weight"},  # The head's name in the memory of `transformers`.
    rules=(
        NameRule("embed_in.weight", "tokens", "v e -> v e"),
        *weight_names.norm(_LAYER + "input_layernorm", "blocks.attention_norm"),
        # Query, key and value of each head, head by head.
        *weight_names.fused_attention(_LAYER + "attention.query_key_value", "(h j k) d -> d j h k", ("1", "1", "1")),
        *weight_names.dense(_LAYER + "attention.dense", "blocks.attention.out", "d (h k) -> h k d"),
        *weight_names.norm(_LAYER + "post_attention_layernorm", "blocks.mlp_norm"),
        *weight_names.dense(_LAYER + "mlp.dense_h_to_4h", "blocks.mlp.up", "f d -> d f"),
        *weight_names.dense(_LAYER + "mlp.dense_4h_to_h", "blocks.mlp.down", "d f -> f d"),
        *weight_names.norm("final_layer_norm", "final_norm"),
        NameRule("embed_out.weight", "head_rows", "v e -> v e", prefixed=False),
    ),
)
_PHI_TABLE = llama.table(
    NameRule("embed_tokens.weight", "tokens", "v e -> v e"),
    *weight_names.attention(llama.SELF + "q_proj", llama.SELF + "k_proj", llama.SELF + "v_proj", llama.SELF + "dense"),
    *weight_names.norm(_LAYER + "input_layernorm", "blocks.input_norm"),
    *weight_names.dense(_LAYER + "mlp.fc1", "blocks.mlp.up", "f d -> d f"),
    *weight_names.dense(_LAYER + "mlp.fc2", "blocks.mlp.down", "d f -> f d"),
    *weight_names.norm("final_layernorm", "final_norm"),
    weight_names.HEAD,
    NameRule("lm_head.bias", "head_bias", "v -> v", prefixed=False),
)
FAMILIES = (Family("gpt_neox", _gpt_neox, _TABLE), Family("phi", _phi, _PHI_TABLE))
