"""OLMo 2: a Llama that normalises what attention and MLP give instead of what they get, and queries and keys across heads."""

import functools

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import hf_config, llama_like, names


def config_from_hf(hf: hf_config.Fields) -> config_lib.DecoderConfig:
    return llama_like.config_from_hf(
        hf,
        "olmo2",
        kv_heads=hf.size("num_attention_heads"),
        epsilon=1e-5,
        norm_places=(config_lib.OUTPUT,),
        qk_norm="all",
        **llama_like.attention_biases(hf),
    )


_shape = functools.partial(llama_like.shape, "olmo2", rms_norm_eps=1e-6, rope_theta=5e5)
PUBLISHED = {
    "allenai/OLMo-2-0425-1B": _shape(2048, 16, 16, 16, 8192, 100352, 4096),
    "allenai/OLMo-2-1124-7B": _shape(4096, 32, 32, 32, 11008, 100352, 4096),
    "allenai/OLMo-2-1124-13B": _shape(5120, 40, 40, 40, 13824, 100352, 4096),
    "allenai/OLMo-2-0325-32B": _shape(5120, 64, 40, 8, 27648, 100352, 4096),
}
_LAYER, _SELF = llama_like.LAYER, llama_like.SELF
TABLE = llama_like.table(
    *llama_like.OUTSIDE_RULES,
    *llama_like.PART_RULES,
    *names.norm(_LAYER + "post_attention_layernorm", "blocks.attention_output_norm"),
    *names.norm(_LAYER + "post_feedforward_layernorm", "blocks.mlp_output_norm"),
    *names.norm(_SELF + "q_norm", "blocks.attention.q_norm", "(h k) -> h k"),
    *names.norm(_SELF + "k_norm", "blocks.attention.k_norm", "(g k) -> g k"),
)
