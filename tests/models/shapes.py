"""Configurations of small `transformers` models: every family, and each of its switches on somewhere.

Sizes are unequal and mostly prime. Windows are shorter than the prompts of the tests (29 tokens, or 11 shared and up to
17 more), and scaled rotary positions were trained on fewer tokens than these prompts have.
"""

import transformers

_SPECIAL = {"vocab_size": 53, "bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1}
_GPT2 = {"n_embd": 35, "n_head": 5, "n_layer": 2, "n_inner": 41, "n_positions": 29, **_SPECIAL}
_OPT = {"hidden_size": 35, "num_attention_heads": 5, "num_hidden_layers": 2, "ffn_dim": 41, **_SPECIAL}
_OPT |= {"max_position_embeddings": 29}


def _sizes(width: int, heads: int, kv_heads: int, layers: int = 3, **others: object) -> dict[str, object]:
    sizes = {"hidden_size": width, "num_attention_heads": heads, "num_key_value_heads": kv_heads}
    sizes |= {"num_hidden_layers": layers, "intermediate_size": 41, "max_position_embeddings": 97}
    return {**sizes, **_SPECIAL, **others}


def _rope(kind: str, theta: float = 100.0, **values: object) -> dict[str, object]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **values}}


_LLAMA = _sizes(42, 6, 2, head_dim=10, **_rope("default"))
_LLAMA3 = _rope("llama3", factor=5.0, low_freq_factor=1.0, high_freq_factor=3.0, original_max_position_embeddings=23)
_MISTRAL = _sizes(35, 6, 3, head_dim=10, sliding_window=7)
_QWEN2 = _sizes(60, 6, 2, **_rope("default", 1000.0))
_QWEN3 = _sizes(35, 6, 2, head_dim=8, **_rope("default", 1000.0))
_GEMMA3 = _sizes(35, 5, 1, 5, head_dim=6, sliding_window=7, query_pre_attn_scalar=11, sliding_window_pattern=3)
_LOCAL = {"rope_theta": 1e3, "rope_local_base_freq": 20.0, "rope_scaling": {"rope_type": "linear", "factor": 3.0}}
_NEOX = {key: value for key, value in _sizes(50, 5, 5).items() if key != "num_key_value_heads"}
_OLMO2 = _sizes(60, 6, 2)
_PHI = _sizes(50, 5, 1, partial_rotary_factor=0.4)
_PHI3 = _sizes(60, 6, 2, original_max_position_embeddings=31)
_LONG = {"type": "longrope", "short_factor": [1.0, 1.5, 3.0], "long_factor": [3.0, 9.0, 13.0]}
_SMOLLM3 = _sizes(60, 6, 3, 5, no_rope_layer_interval=2)
_UNTIED = {"tie_word_embeddings": False, "attention_bias": True}
_TIED = {"tie_word_embeddings": True, "attention_bias": True}

SHAPES = {
    "gpt2": transformers.GPT2Config(**_GPT2),
    "gpt2-gelu": transformers.GPT2Config(**_GPT2, activation_function="gelu"),
    "gpt2-untied": transformers.GPT2Config(**_GPT2, tie_word_embeddings=False),
    "opt": transformers.OPTConfig(**_OPT),
    "opt-350m": transformers.OPTConfig(**_OPT, do_layer_norm_before=False, word_embed_proj_dim=11),
    "opt-untied": transformers.OPTConfig(**_OPT, tie_word_embeddings=False, _remove_final_layer_norm=True),
    "llama": transformers.LlamaConfig(**_LLAMA),
    "llama-biases": transformers.LlamaConfig(
        **_LLAMA | _rope("linear", factor=3.0), **_TIED, mlp_bias=True, rms_norm_eps=0.03
    ),
    "llama-llama3": transformers.LlamaConfig(**_LLAMA | _LLAMA3 | {"num_key_value_heads": 1, "head_dim": 14}),
    "mistral": transformers.MistralConfig(**_MISTRAL),
    "mistral-tied": transformers.MistralConfig(**_MISTRAL | {"sliding_window": 17}, tie_word_embeddings=True),
    "qwen2": transformers.Qwen2Config(**_QWEN2),
    "qwen2-tied": transformers.Qwen2Config(**_QWEN2, tie_word_embeddings=True),
    "qwen3": transformers.Qwen3Config(**_QWEN3),
    "qwen3-tied": transformers.Qwen3Config(**_QWEN3, **_TIED),
    "gemma3": transformers.Gemma3TextConfig(**_GEMMA3),
    "gemma3-untied": transformers.Gemma3TextConfig(
        **_GEMMA3, **_UNTIED, **_LOCAL, layer_types=["full_attention", *["sliding_attention"] * 4]
    ),
    "gpt_neox": transformers.GPTNeoXConfig(**_NEOX, rotary_pct=0.4),
    "gpt_neox-tied": transformers.GPTNeoXConfig(
        **_NEOX, rotary_pct=1.0, rotary_emb_base=50, use_parallel_residual=False, layer_norm_eps=0.03, **_TIED
    ),
    "gpt_neox-no-biases": transformers.GPTNeoXConfig(
        **_NEOX, rotary_pct=0.6, attention_bias=False, hidden_act="gelu_fast"
    ),
    "olmo2": transformers.Olmo2Config(**_OLMO2),
    "olmo2-tied": transformers.Olmo2Config(**_OLMO2, **_TIED, **_rope("linear", 1e3, factor=5.0)),
    "phi": transformers.PhiConfig(**_PHI),
    "phi-tied": transformers.PhiConfig(
        **_PHI | {"num_key_value_heads": 5, "partial_rotary_factor": 1.0}, tie_word_embeddings=True, hidden_act="gelu"
    ),
    "phi3": transformers.Phi3Config(**_PHI3),
    "phi3-tied": transformers.Phi3Config(
        **_PHI3, sliding_window=5, partial_rotary_factor=0.6, rope_scaling=_LONG, tie_word_embeddings=True
    ),
    "smollm3": transformers.SmolLM3Config(**_SMOLLM3),
    "smollm3-untied": transformers.SmolLM3Config(
        **_SMOLLM3, **_UNTIED, **_rope("linear", factor=3.0), mlp_bias=True, no_rope_layers=[0, 1, 1, 0, 1]
    ),
}
