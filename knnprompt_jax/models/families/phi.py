"""Phi-1, 1.5 and 2: one LayerNorm for attention and MLP side by side, partly turned heads, a bias on the head."""

from typing import Any

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import hf_config
from knnprompt_jax.models.families import Family, gpt_neox, llama, names, rope
from knnprompt_jax.models.weights.conversion import NameRule


def _config_from_hf(hf: hf_config.Fields) -> config_lib.DecoderConfig:
    hf.require("qk_layernorm", False)
    heads = hf.size("num_attention_heads")
    different: dict[str, Any] = {
        "num_kv_heads": hf.divisor("num_key_value_heads", heads, heads),
        "norm_places": (config_lib.BEFORE_BOTH,),
        "parallel_residual": True,
        "head_bias": True,
    }
    return gpt_neox.config_from_hf(hf, "phi", rope.parameters(hf, 1e4, 0.5), "gelu_new", **different)


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
