"""Llama 2 and 3, and models of the same architecture (SmolLM2)."""

import functools

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import hf_config, llama_like


def config_from_hf(hf: hf_config.Fields) -> config_lib.DecoderConfig:
    hf.value("pretraining_tp")  # In how many parts products were computed in training: the same products.
    return llama_like.config_from_hf(
        hf,
        "llama",
        kv_heads=hf.size("num_attention_heads"),  # The first Llama's files do not say.
        **llama_like.attention_biases(hf),
        mlp_bias=hf.switch("mlp_bias", False),
    )


_shape = functools.partial(llama_like.shape, "llama", rms_norm_eps=1e-5)
_tied = functools.partial(_shape, tie_word_embeddings=True)


def _llama3_scaling(factor: float) -> dict[str, object]:
    bands = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    return {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": factor, **bands}}


PUBLISHED = {
    "meta-llama/Llama-2-7b-hf": _shape(4096, 32, 32, 32, 11008, 32000, 4096),
    "meta-llama/Llama-2-13b-hf": _shape(5120, 40, 40, 40, 13824, 32000, 4096),
    "meta-llama/Meta-Llama-3-8B": _shape(4096, 32, 32, 8, 14336, 128256, 8192, rope_theta=5e5),
    "meta-llama/Llama-3.1-8B": _shape(4096, 32, 32, 8, 14336, 128256, 131072, **_llama3_scaling(8.0)),
    "meta-llama/Llama-3.1-70B": _shape(8192, 80, 64, 8, 28672, 128256, 131072, **_llama3_scaling(8.0)),
    "meta-llama/Llama-3.2-1B": _tied(2048, 16, 32, 8, 8192, 128256, 131072, **_llama3_scaling(32.0)),
    "meta-llama/Llama-3.2-3B": _tied(3072, 28, 24, 8, 8192, 128256, 131072, **_llama3_scaling(32.0)),
    "HuggingFaceTB/SmolLM2-135M": _tied(576, 30, 9, 3, 1536, 49152, 8192, rope_theta=1e5),
    "HuggingFaceTB/SmolLM2-360M": _tied(960, 32, 15, 5, 2560, 49152, 8192, rope_theta=1e5),
    "HuggingFaceTB/SmolLM2-1.7B": _tied(2048, 24, 32, 32, 8192, 49152, 8192, rope_theta=1.3e5),
}
TABLE = llama_like.TABLE
