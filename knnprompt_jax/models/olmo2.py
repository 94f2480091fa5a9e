"""OLMo 2: a Llama that normalises what attention and MLP give instead of what they get, and queries and keys across heads."""

import functools

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import hf_config, llama_like
from knnprompt_jax.models.conversion import Rule


def config_from_hf(hf: hf_config.Fields) -> config_lib.DecoderConfig:
    """The decoder that a config.json describes.

    Raises:
        UserError: a switch that changes the model and is not supported here, a size that is none, or one that is missing.
    """
    bias = hf.switch("attention_bias", False)
    return llama_like.config_from_hf(
        hf,
        "olmo2",
        kv_heads=hf.size("num_attention_heads"),
        epsilon=1e-5,
        norm_places=(config_lib.OUTPUT,),
        qk_norm="all",
        qkv_bias=bias,
        out_bias=bias,
    )


_shape = functools.partial(llama_like.shape, "olmo2", rms_norm_eps=1e-6, rope_theta=5e5)
PUBLISHED = {
    "allenai/OLMo-2-0425-1B": _shape(2048, 16, 16, 16, 8192, 100352, 4096),
    "allenai/OLMo-2-1124-7B": _shape(4096, 32, 32, 32, 11008, 100352, 4096),
    "allenai/OLMo-2-1124-13B": _shape(5120, 40, 40, 40, 13824, 100352, 4096),
    "allenai/OLMo-2-0325-32B": _shape(5120, 64, 40, 8, 27648, 100352, 4096),
}
TABLE = llama_like.table(
    *llama_like.OUTSIDE_RULES,
    *llama_like.ATTENTION_RULES,
    *llama_like.MLP_RULES,
    Rule("layers.{layer}.post_attention_layernorm.weight", "blocks.attention_output_norm.scale", "d -> d"),
    Rule("layers.{layer}.post_feedforward_layernorm.weight", "blocks.mlp_output_norm.scale", "d -> d"),
    Rule("layers.{layer}.self_attn.q_norm.weight", "blocks.attention.q_norm.scale", "(h k) -> h k"),
    Rule("layers.{layer}.self_attn.k_norm.weight", "blocks.attention.k_norm.scale", "(g k) -> g k"),
)
