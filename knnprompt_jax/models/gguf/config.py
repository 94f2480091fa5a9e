"""The config.json that a GGUF file's metadata amount to.

The keys are those of `transformers`' config classes. What no file says and llama.cpp takes for granted stands here as numbers.
"""

import pathlib
from collections.abc import Callable
from typing import Any

from knnprompt_jax.models.gguf import fields as gguf_fields
from knnprompt_jax.models.gguf import gemma as gguf_gemma
from knnprompt_jax.models.gguf import header as gguf_header
from knnprompt_jax.models.gguf import rope as gguf_rope
from knnprompt_jax.models.gguf import sizes as gguf_sizes

Json = dict[str, Any]

_NEOX_20B = {"hidden_size": 6144, "num_hidden_layers": 44}  # Of all GPT-NeoX only its GELU is the tanh approximation.


def config_json(file: pathlib.Path) -> Json:
    """The config.json of a file, complete, as `transformers` writes it; with `rope_factors` where frequencies are divided.

    Raises:
        UserError: the file cannot be read, misses metadata, has some that are not supported, or leaves open what its model
            computes.
    """
    fields = gguf_fields.of_model(gguf_header.read(file))
    config = _BUILDERS[fields.arch](fields) | gguf_sizes.tokens(fields)
    fields.refuse_unread()
    return config


def _silu(
    fields: gguf_fields.Fields,
    model_type: str,
    biases: tuple[str, ...] = (),
    says_head_size: bool = False,
    **others: Any,
) -> Json:
    """A family around Llama: what all share, whether the file has the `biases`, and `others`, which no file says."""
    tensors = {"attention_bias": "attn_q.bias", "mlp_bias": "ffn_up.bias"}
    there = {bias: gguf_sizes.has(fields, tensors[bias]) for bias in biases}
    shared = {"model_type": model_type, "hidden_act": "silu", **gguf_sizes.whole_rotary(fields, says_head_size)}
    return {**shared, **there, **others}


def _llama(fields: gguf_fields.Fields) -> Json:
    """Also Mistral, whose files have the same architecture: a window, where the file has one, tells them apart."""
    if fields.value("attention.sliding_window"):
        window = fields.size("attention.sliding_window")
        return _silu(fields, "mistral", says_head_size=True, sliding_window=window)
    return _silu(fields, "llama", ("attention_bias", "mlp_bias"), says_head_size=True)


def _olmo2(fields: gguf_fields.Fields) -> Json:
    if fields.value("attention.sliding_window"):
        raise fields.wrong("attention.sliding_window", "an OLMo 3; of this architecture only OLMo 2 is supported")
    return _silu(fields, "olmo2", ("attention_bias",))


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
    "qwen2": lambda fields: _silu(fields, "qwen2", use_sliding_window=False),
    "qwen3": lambda fields: _silu(fields, "qwen3", ("attention_bias",), says_head_size=True, use_sliding_window=False),
    "gemma2": gguf_gemma.gemma2,
    "gemma3": gguf_gemma.gemma3,
    "phi3": _phi3,
    "olmo2": _olmo2,
    "smollm3": lambda fields: _silu(
        fields, "smollm3", ("attention_bias", "mlp_bias"), no_rope_layer_interval=4, use_sliding_window=False
    ),
    "gptneox": _gptneox,
    "gpt2": _gpt2,
}
