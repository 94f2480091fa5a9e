"""Qwen3: a Llama that normalises queries and keys within each head; heads need not share the width."""

import functools
from typing import Any

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import hf_config, llama_like


def config_from_hf(hf: hf_config.Fields) -> config_lib.DecoderConfig:
    hf.size("head_dim")
    different: dict[str, Any] = {
        "qk_norm": "head",
        "windows": llama_like.qwen_windows(hf),
        **llama_like.attention_biases(hf),
    }
    return llama_like.config_from_hf(hf, "qwen3", **different)


_shape = functools.partial(llama_like.shape, "qwen3", rms_norm_eps=1e-6, rope_theta=1e6, head_dim=128)
PUBLISHED = {
    "Qwen/Qwen3-0.6B": _shape(1024, 28, 16, 8, 3072, 151936, 40960, tie_word_embeddings=True),
    "Qwen/Qwen3-1.7B": _shape(2048, 28, 16, 8, 6144, 151936, 40960, tie_word_embeddings=True),
    "Qwen/Qwen3-4B": _shape(2560, 36, 32, 8, 9728, 151936, 40960, tie_word_embeddings=True),
    "Qwen/Qwen3-8B": _shape(4096, 36, 32, 8, 12288, 151936, 40960),
    "Qwen/Qwen3-14B": _shape(5120, 40, 40, 8, 17408, 151936, 40960),
    "Qwen/Qwen3-32B": _shape(5120, 64, 64, 8, 25600, 151936, 40960),
}
TABLE = llama_like.table(*llama_like.TABLE.rules, *llama_like.HEAD_NORM_RULES)
