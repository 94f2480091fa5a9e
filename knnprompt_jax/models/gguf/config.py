"""The config.json that a GGUF file's metadata amount to.

The keys are those of `transformers`' config classes. What no file says and llama.cpp takes for granted stands here as numbers.
"""

import pathlib
from collections.abc import Callable
from typing import Any

from knnprompt_jax.models.gguf import fields as gguf_fields
from knnprompt_jax.models.gguf import gemma as gguf_gemma
from knnprompt_jax.models.gguf import rope as gguf_rope
from knnprompt_jax.models.gguf import sizes as gguf_sizes
from knnprompt_jax.models.gguf import tensors as gguf_tensors

Json = dict[str, Any]

_SMOLLM3_NO_ROPE_INTERVAL = 4
_NEOX_20B = {"hidden_size": 6144, "num_hidden_layers": 44}  # The one GPT-NeoX whose GELU is the tanh approximation.


def config_json(file: pathlib.Path) -> Json:
    """The config.json of a file, complete, as `transformers` writes it; with `rope_factors` where frequencies are divided.

    Raises:
        UserError: the file cannot be read, misses metadata, has some that are not supported, or leaves open what its model
            computes.
    """
    fields = gguf_tensors.open_fields(file)
    config = _BUILDERS[fields.arch](fields) | gguf_sizes.tokens(fields)
    fields.refuse_unread()
    return config


def _silu(fields: gguf_fields.Fields, *biases: str, says_head_size: bool = False) -> Json:
    """What the families around Llama share; of `biases`, whether the file has them."""
    tensors = {"attention_bias": "attn_q.bias", "mlp_bias": "ffn_up.bias"}
    there = {bias: gguf_sizes.has(fields, tensors[bias]) for bias in biases}
    return {"hidden_act": "silu", **gguf_sizes.whole_rotary(fields, says_head_size), **there}


def _llama(fields: gguf_fields.Fields) -> Json:
    """Also Mistral, whose files have the same architecture: a window, where the file has one, tells them apart."""
    if fields.value("attention.sliding_window"):
        window = fields.size("attention.sliding_window")
        return {"model_type": "mistral", **_silu(fields, says_head_size=True), "sliding_window": window}
    return {"model_type": "llama", **_silu(fields, "attention_bias", "mlp_bias", says_head_size=True)}


def _qwen2(fields: gguf_fields.Fields) -> Json:
    return {"model_type": "qwen2", **_silu(fields), "use_sliding_window": False}


def _qwen3(fields: gguf_fields.Fields) -> Json:
    return {"model_type": "qwen3", **_silu(fields, "attention_bias", says_head_size=True), "use_sliding_window": False}


def _olmo2(fields: gguf_fields.Fields) -> Json:
    if fields.value("attention.sliding_window"):
        raise fields.wrong("attention.sliding_window", "an OLMo 3; of this architecture only OLMo 2 is supported")
    return {"model_type": "olmo2", **_silu(fields, "attention_bias")}


def _smollm3(fields: gguf_fields.Fields) -> Json:
    others = {"no_rope_layer_interval": _SMOLLM3_NO_ROPE_INTERVAL, "use_sliding_window": False}
    return {"model_type": "smollm3", **_silu(fields, "attention_bias", "mlp_bias"), **others}


def _phi3(fields: gguf_fields.Fields) -> Json:
    gguf_sizes.require_width_per_head(fields)
    window = fields.value("attention.sliding_window")
    if window is None:
        raise fields.wrong("attention.sliding_window", "missing: convert the model again with a newer llama.cpp")
    window = fields.size("attention.sliding_window") if window else None
    share = gguf_rope.share(fields, gguf_sizes.head_size(fields))
    config = {"model_type": "phi3", "hidden_act": "silu", "sliding_window": window, **gguf_sizes.rms_sizes(fields)}
    return config | ({} if share == 1 else {"partial_rotary_factor": share}) | gguf_rope.longrope(fields)


def _gptneox(fields: gguf_fields.Fields) -> Json:
    config = gguf_sizes.sizes(fields)
    is_20b = all(config[key] == value for key, value in _NEOX_20B.items())
    others = {
        "hidden_act": "gelu_fast" if is_20b else "gelu",
        "layer_norm_eps": fields.number("attention.layer_norm_epsilon"),
        "rotary_emb_base": fields.number("rope.freq_base", gguf_rope.DEFAULT_THETA),
        "rotary_pct": gguf_rope.share(fields, gguf_sizes.head_size(fields)),
        "use_parallel_residual": fields.switch("use_parallel_residual", True),
        "attention_bias": gguf_sizes.has(fields, "attn_qkv.bias"),
    }
    return {"model_type": "gpt_neox", **config, **others}


def _gpt2(fields: gguf_fields.Fields) -> Json:
    others = {
        "n_embd": fields.size("embedding_length"),
        "n_inner": fields.size("feed_forward_length"),
        "n_layer": gguf_fields.num_layers(fields),
        "n_head": fields.size("attention.head_count"),
        "n_positions": fields.size("context_length"),
        "layer_norm_epsilon": fields.number("attention.layer_norm_epsilon"),
        "activation_function": "gelu_new",
    }
    return {"model_type": "gpt2", **gguf_sizes.vocabulary(fields), **others}


_BUILDERS: dict[str, Callable[[gguf_fields.Fields], Json]] = {
    "llama": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma2": gguf_gemma.gemma2,
    "gemma3": gguf_gemma.gemma3,
    "phi3": _phi3,
    "olmo2": _olmo2,
    "smollm3": _smollm3,
    "gptneox": _gptneox,
    "gpt2": _gpt2,
}
