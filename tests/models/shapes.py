"""Configurations of small `transformers` models: every family, and each of its switches on somewhere.

Sizes are unequal and mostly prime; windows are shorter than the prompts of the tests (29 tokens, or 11 shared and up to 17 more), and
scaled rotary positions were trained on fewer tokens than those prompts have.
"""

import transformers

SPECIAL = {"vocab_size": 53, "bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1}
_GPT2 = {"n_embd": 35, "n_head": 5, "n_layer": 2, "n_inner": 41, "n_positions": 29, **SPECIAL}
_OPT = {"hidden_size": 35, "num_attention_heads": 5, "num_hidden_layers": 2, "ffn_dim": 41, **SPECIAL}
_OPT |= {"max_position_embeddings": 29}


def _sizes(width: int, heads: int, kv_heads: int, layers: int = 3, **others: object) -> dict[str, object]:
    sizes = {"hidden_size": width, "num_attention_heads": heads, "num_key_value_heads": kv_heads}
    sizes |= {"num_hidden_layers": layers, "intermediate_size": 41, "max_position_embeddings": 97}
    return {**sizes, **SPECIAL, **others}


def _rope(kind: str, theta: float = 100.0, **values: object) -> dict[str, object]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **values}}


_LLAMA = _sizes(42, 6, 2, head_dim=10, **_rope("default"))
_LLAMA3 = _rope("llama3", factor=5.0, low_freq_factor=1.0, high_freq_factor=3.0, original_max_position_embeddings=23)
_YARN = {"factor": 5.0, "original_max_position_embeddings": 19, "beta_fast": 3.0, "beta_slow": 0.5}
_MISTRAL = _sizes(35, 6, 3, head_dim=10, sliding_window=7)
_QWEN2 = _sizes(60, 6, 2, **_rope("default", 1000.0))
_QWEN3 = _sizes(35, 6, 2, head_dim=8, **_rope("default", 1000.0))
_WINDOWS = {"use_sliding_window": True, "sliding_window": 5}
_GEMMA2 = _sizes(35, 5, 1, head_dim=6, sliding_window=5, query_pre_attn_scalar=11)
_CAPS = {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 7.0}
_GEMMA3 = _sizes(35, 5, 1, 5, head_dim=6, sliding_window=7, query_pre_attn_scalar=11, sliding_window_pattern=3)
_NEOX = _sizes(50, 5, 5)
del _NEOX["num_key_value_heads"]
_OLMO2 = _sizes(60, 6, 2)
_PHI = _sizes(50, 5, 1, partial_rotary_factor=0.4)
_PHI3 = _sizes(60, 6, 2, original_max_position_embeddings=31)
_LONG = {"short_factor": [1.0, 1.1, 1.5, 2.0, 3.0], "long_factor": [3.0, 7.0, 9.0, 11.0, 13.0]}
_SMOLLM3 = _sizes(60, 6, 3, 5, no_rope_layer_interval=2)

SHAPES = {
    "gpt2": transformers.GPT2Config(**_GPT2),
    "gpt2-scaled-by-layer": transformers.GPT2Config(
        **_GPT2, scale_attn_by_inverse_layer_idx=True, activation_function="gelu"
    ),
    "gpt2-unscaled": transformers.GPT2Config(**_GPT2, scale_attn_weights=False),
    "gpt2-untied": transformers.GPT2Config(**_GPT2, tie_word_embeddings=False),
    "opt": transformers.OPTConfig(**_OPT),
    "opt-350m": transformers.OPTConfig(**_OPT, do_layer_norm_before=False, word_embed_proj_dim=11),
    "opt-no-final-norm": transformers.OPTConfig(**_OPT, _remove_final_layer_norm=True),
    "opt-even": transformers.OPTConfig(
        **_OPT | {"hidden_size": 34, "num_attention_heads": 2, "ffn_dim": 46, "vocab_size": 52}
    ),
    "opt-untied": transformers.OPTConfig(**_OPT, tie_word_embeddings=False),
    "llama": transformers.LlamaConfig(**_LLAMA),
    "llama-tied": transformers.LlamaConfig(**_LLAMA, tie_word_embeddings=True, rms_norm_eps=0.03),
    "llama-biases": transformers.LlamaConfig(**_LLAMA, attention_bias=True, mlp_bias=True),
    "llama-one-key-head": transformers.LlamaConfig(**_LLAMA | {"num_key_value_heads": 1, "head_dim": 14}),
    "llama-linear": transformers.LlamaConfig(**_LLAMA | _rope("linear", factor=3.0)),
    "llama-dynamic": transformers.LlamaConfig(**_LLAMA | _rope("dynamic", factor=3.0)),
    "llama-llama3": transformers.LlamaConfig(**_LLAMA | _LLAMA3),
    "llama-yarn": transformers.LlamaConfig(**_LLAMA | _rope("yarn", **_YARN)),
    "llama-yarn-mscale": transformers.LlamaConfig(
        **_LLAMA | _rope("yarn", 1e4, **_YARN, mscale=2.0, mscale_all_dim=0.7, truncate=False)
    ),
    "llama-yarn-attention": transformers.LlamaConfig(**_LLAMA | _rope("yarn", 1e4, **_YARN, attention_factor=1.3)),
    "mistral": transformers.MistralConfig(**_MISTRAL),
    "mistral-tied": transformers.MistralConfig(**_MISTRAL | {"sliding_window": 17}, tie_word_embeddings=True),
    "mistral-no-window": transformers.MistralConfig(**_MISTRAL | {"sliding_window": None}),
    "qwen2": transformers.Qwen2Config(**_QWEN2),
    "qwen2-tied": transformers.Qwen2Config(**_QWEN2, tie_word_embeddings=True),
    "qwen2-windows": transformers.Qwen2Config(**_QWEN2, **_WINDOWS, max_window_layers=1),
    "qwen3": transformers.Qwen3Config(**_QWEN3),
    "qwen3-tied": transformers.Qwen3Config(**_QWEN3, tie_word_embeddings=True, attention_bias=True),
    "qwen3-windows": transformers.Qwen3Config(
        **_QWEN3, **_WINDOWS, layer_types=["sliding_attention", "full_attention", "sliding_attention"]
    ),
    "gemma2": transformers.Gemma2Config(**_GEMMA2, **_CAPS),
    "gemma2-untied": transformers.Gemma2Config(**_GEMMA2, **_CAPS, tie_word_embeddings=False, attention_bias=True),
    "gemma2-no-caps": transformers.Gemma2Config(
        **_GEMMA2 | {"sliding_window": 13}, attn_logit_softcapping=None, final_logit_softcapping=None
    ),
    "gemma3": transformers.Gemma3TextConfig(**_GEMMA3),
    "gemma3-untied": transformers.Gemma3TextConfig(**_GEMMA3, tie_word_embeddings=False, attention_bias=True),
    "gemma3-linear": transformers.Gemma3TextConfig(
        **_GEMMA3, rope_theta=1e3, rope_local_base_freq=20.0, rope_scaling={"rope_type": "linear", "factor": 3.0}
    ),
    "gemma3-capped": transformers.Gemma3TextConfig(
        **_GEMMA3, final_logit_softcapping=7.0, layer_types=["full_attention", *["sliding_attention"] * 4]
    ),
    "gpt_neox": transformers.GPTNeoXConfig(**_NEOX, rotary_pct=0.4),
    "gpt_neox-tied": transformers.GPTNeoXConfig(**_NEOX, rotary_pct=1.0, rotary_emb_base=50, tie_word_embeddings=True),
    "gpt_neox-not-parallel": transformers.GPTNeoXConfig(**_NEOX, use_parallel_residual=False, layer_norm_eps=0.03),
    "gpt_neox-no-biases": transformers.GPTNeoXConfig(**_NEOX, rotary_pct=0.6, attention_bias=False),
    "olmo2": transformers.Olmo2Config(**_OLMO2),
    "olmo2-tied": transformers.Olmo2Config(**_OLMO2, tie_word_embeddings=True, attention_bias=True),
    "olmo2-yarn": transformers.Olmo2Config(**_OLMO2, **_rope("yarn", 1e3, **_YARN)),
    "phi": transformers.PhiConfig(**_PHI),
    "phi-all-heads": transformers.PhiConfig(**_PHI | {"num_key_value_heads": 5, "partial_rotary_factor": 1.0}),
    "phi-tied": transformers.PhiConfig(**_PHI, tie_word_embeddings=True, hidden_act="gelu"),
    "phi3": transformers.Phi3Config(**_PHI3),
    "phi3-tied": transformers.Phi3Config(
        **_PHI3, sliding_window=5, partial_rotary_factor=0.6, tie_word_embeddings=True
    ),
    "phi3-long": transformers.Phi3Config(**_PHI3, rope_scaling={"type": "longrope", **_LONG}),
    "smollm3": transformers.SmolLM3Config(**_SMOLLM3),
    "smollm3-untied": transformers.SmolLM3Config(
        **_SMOLLM3, tie_word_embeddings=False, attention_bias=True, mlp_bias=True, no_rope_layers=[0, 1, 1, 0, 1]
    ),
    "smollm3-windows": transformers.SmolLM3Config(**_SMOLLM3, **_WINDOWS, **_rope("linear", factor=3.0)),
}
