"""Qwen2 and Qwen2.5: a Llama with biases on queries, keys and values. Its vocabulary is padded, differently by size."""

import functools

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import hf_config, llama_like


def config_from_hf(hf: hf_config.Fields) -> config_lib.DecoderConfig:
    return llama_like.config_from_hf(hf, "qwen2", qkv_bias=True, windows=llama_like.qwen_windows(hf))


_shape = functools.partial(llama_like.shape, "qwen2", rms_norm_eps=1e-6, rope_theta=1e6)
PUBLISHED = {
    "Qwen/Qwen2.5-0.5B": _shape(896, 24, 14, 2, 4864, 151936, 32768, tie_word_embeddings=True),
    "Qwen/Qwen2.5-1.5B": _shape(1536, 28, 12, 2, 8960, 151936, 131072, tie_word_embeddings=True),
    "Qwen/Qwen2.5-3B": _shape(2048, 36, 16, 2, 11008, 151936, 32768, tie_word_embeddings=True),
    "Qwen/Qwen2.5-7B": _shape(3584, 28, 28, 4, 18944, 152064, 131072),
    "Qwen/Qwen2.5-32B": _shape(5120, 64, 40, 8, 27648, 152064, 131072, rms_norm_eps=1e-5),
}
TABLE = llama_like.TABLE
