"""Phi-1, 1.5 and 2: one LayerNorm for attention and MLP side by side, partly turned heads, a bias on the head."""

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import hf_config, layers
from knnprompt_jax.models.families import Family, llama, names, rope
from knnprompt_jax.models.weights.conversion import NameRule


def _config_from_hf(hf: hf_config.Fields) -> config_lib.DecoderConfig:
    width = hf.size("hidden_size")
    heads = hf.divisor("num_attention_heads", width)
    parameters = rope.parameters(hf, 1e4, 0.5)
    table, context = rope.frequencies(parameters, width // heads, hf.size("max_position_embeddings"))
    hf.require("qk_layernorm", False)
    return config_lib.DecoderConfig.with_equal_heads(
        family="phi",
        vocab_size=hf.size("vocab_size"),
        width=width,
        num_layers=hf.size("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=hf.divisor("num_key_value_heads", heads, heads),
        mlp_width=hf.size("intermediate_size"),
        num_positions=context,
        position_table=False,
        rotary=(table,),
        activation=hf.choice("hidden_act", "gelu_new", layers.ACTIVATIONS),
        parallel_residual=True,
        norm_places=(config_lib.BEFORE_BOTH,),
        norm_epsilon=hf.number("layer_norm_eps", 1e-5),
        head_bias=True,
        tied_head=hf.switch("tie_word_embeddings", False),
    )


_LAYER, _SELF = llama.LAYER, llama.SELF
_TABLE = llama.table(
    NameRule("embed_tokens.weight", "tokens", "v e -> v e"),
    *names.attention(_SELF + "q_proj", _SELF + "k_proj", _SELF + "v_proj", _SELF + "dense"),
    *names.norm(_LAYER + "input_layernorm", "blocks.input_norm"),
    *names.dense(_LAYER + "mlp.fc1", "blocks.mlp.up", "f d -> d f"),
    *names.dense(_LAYER + "mlp.fc2", "blocks.mlp.down", "d f -> f d"),
    *names.norm("final_layernorm", "final_norm"),
    names.HEAD,
    NameRule("lm_head.bias", "head_bias", "v -> v", prefixed=False),
)
FAMILIES = (Family("phi", "PhiForCausalLM", _config_from_hf, _TABLE),)
