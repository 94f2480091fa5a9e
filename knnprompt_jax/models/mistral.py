"""Mistral 7B: a Llama with a window in every layer, in its first version."""

import functools
from typing import Any

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import hf_config, llama_like


def config_from_hf(hf: hf_config.Fields) -> config_lib.DecoderConfig:
    has_window = not hf.has("sliding_window") or hf.value("sliding_window") is not None  # Absent, it is 4,096.
    windows = (hf.size("sliding_window", 4096),) * hf.size("num_hidden_layers") if has_window else ()
    return llama_like.config_from_hf(hf, "mistral", windows=windows)


_shape = functools.partial(llama_like.shape, "mistral", rms_norm_eps=1e-5)
_LATER: dict[str, Any] = {"sliding_window": None, "rope_theta": 1e6}
PUBLISHED = {
    "mistralai/Mistral-7B-v0.1": _shape(4096, 32, 32, 8, 14336, 32000, 32768, sliding_window=4096),
    "mistralai/Mistral-7B-v0.3": _shape(4096, 32, 32, 8, 14336, 32768, 32768, **_LATER),
    "mistralai/Mistral-Nemo-Base-2407": _shape(5120, 40, 32, 8, 14336, 131072, 131072, head_dim=128, **_LATER),
}
TABLE = llama_like.TABLE
