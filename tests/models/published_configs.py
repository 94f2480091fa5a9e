"""The config.json of published models, key by key as they stand on the Hub, as far as we know them."""

from typing import Any

_LLAMA31 = {
    **{"architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0},
    **{"bos_token_id": 128000, "eos_token_id": 128001, "hidden_act": "silu", "hidden_size": 4096},
    **{"initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 131072, "mlp_bias": False},
    **{"model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8},
    **{"pretraining_tp": 1, "rms_norm_eps": 1e-05},
    "rope_scaling": {
        **{"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        **{"original_max_position_embeddings": 8192, "rope_type": "llama3"},
    },
    **{"rope_theta": 500000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16"},
    **{"transformers_version": "4.43.0.dev0", "use_cache": True, "vocab_size": 128256},
}
_LLAMA1 = {
    **{"architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu"},
    **{"hidden_size": 4096, "intermediate_size": 11008, "initializer_range": 0.02, "max_position_embeddings": 2048},
    **{"model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32, "pad_token_id": 0},
    **{"rms_norm_eps": 1e-06, "torch_dtype": "float16", "transformers_version": "4.28.0.dev0", "use_cache": True},
    **{"vocab_size": 32000, "tie_word_embeddings": False},
}
_SMOLLM2 = {
    **{"architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 0},
    **{"eos_token_id": 0, "hidden_act": "silu", "hidden_size": 576, "initializer_range": 0.041666666666666664},
    **{"intermediate_size": 1536, "is_llama_config": True, "max_position_embeddings": 8192, "mlp_bias": False},
    **{"model_type": "llama", "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3},
    **{"pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_interleaved": False, "rope_scaling": None},
    **{"rope_theta": 100000, "tie_word_embeddings": True, "torch_dtype": "bfloat16"},
    **{"transformers_version": "4.40.1", "use_cache": True, "vocab_size": 49152},
}
_MISTRAL = {
    **{"architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu"},
    **{"hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 32768},
    **{"model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8},
    **{"rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 4096, "tie_word_embeddings": False},
    **{"torch_dtype": "bfloat16", "transformers_version": "4.34.0.dev0", "use_cache": True, "vocab_size": 32000},
}
_QWEN25 = {
    **{"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643},
    **{"eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 3584, "initializer_range": 0.02},
    **{"intermediate_size": 18944, "max_position_embeddings": 131072, "max_window_layers": 28},
    **{"model_type": "qwen2", "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4},
    **{"rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 131072, "tie_word_embeddings": False},
    **{"torch_dtype": "bfloat16", "transformers_version": "4.40.1", "use_cache": True, "use_mrope": False},
    **{"use_sliding_window": False, "vocab_size": 152064},
}
_QWEN3 = {
    **{"architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0},
    **{"bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024},
    **{"initializer_range": 0.02, "intermediate_size": 3072, "max_position_embeddings": 40960},
    **{"max_window_layers": 28, "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28},
    **{"num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 1000000},
    **{"sliding_window": None, "tie_word_embeddings": True, "torch_dtype": "bfloat16"},
    **{"transformers_version": "4.51.0", "use_cache": True, "use_sliding_window": False, "vocab_size": 151936},
}
_GEMMA2 = {
    **{"architectures": ["Gemma2ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0},
    **{"attn_logit_softcapping": 50.0, "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": 1},
    **{"final_logit_softcapping": 30.0, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh"},
    **{"hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304, "initializer_range": 0.02},
    **{"intermediate_size": 9216, "max_position_embeddings": 8192, "model_type": "gemma2"},
    **{"num_attention_heads": 8, "num_hidden_layers": 26, "num_key_value_heads": 4, "pad_token_id": 0},
    **{"query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "sliding_window": 4096},
    **{"torch_dtype": "float32", "transformers_version": "4.42.0.dev0", "use_cache": True, "vocab_size": 256000},
}
_GEMMA3 = {
    **{"architectures": ["Gemma3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0},
    **{"attn_logit_softcapping": None, "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": 1},
    **{"final_logit_softcapping": None, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh"},
    **{"hidden_size": 1152, "initializer_range": 0.02, "intermediate_size": 6912, "max_position_embeddings": 32768},
    **{"model_type": "gemma3_text", "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1},
    **{"pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000},
    **{"rope_scaling": None, "rope_theta": 1000000, "sliding_window": 512, "sliding_window_pattern": 6},
    **{"torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0", "use_cache": True, "vocab_size": 262144},
}
_GEMMA3_LATER = {
    key: value for key, value in _GEMMA3.items() if key not in ("sliding_window_pattern", "cache_implementation")
} | {
    **{"_sliding_window_pattern": 6, "hidden_size": 640, "intermediate_size": 2048, "num_hidden_layers": 18},
    **{"layer_types": ([*["sliding_attention"] * 5, "full_attention"] * 3), "use_bidirectional_attention": False},
    **{"rope_local_base_freq": 10000.0, "rope_theta": 1000000.0, "transformers_version": "4.55.0.dev0"},
}
_GEMMA3_NEST = {
    key: value
    for key, value in _GEMMA3_LATER.items()
    if key not in ("rope_local_base_freq", "rope_theta", "rope_scaling")
} | {
    "rope_parameters": {
        "full_attention": {"rope_theta": 1000000.0, "rope_type": "default"},
        "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
    },
    **{"dtype": "bfloat16", "transformers_version": "5.0.0"},
}
_PYTHIA = {
    **{"architectures": ["GPTNeoXForCausalLM"], "bos_token_id": 0, "eos_token_id": 0, "hidden_act": "gelu"},
    **{"hidden_size": 768, "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-05},
    **{"max_position_embeddings": 2048, "model_type": "gpt_neox", "num_attention_heads": 12},
    **{"num_hidden_layers": 12, "rotary_emb_base": 10000, "rotary_pct": 0.25, "tie_word_embeddings": False},
    **{"torch_dtype": "float16", "transformers_version": "4.24.0", "use_cache": True},
    **{"use_parallel_residual": True, "vocab_size": 50304},
}
_OLMO2 = {
    **{"architectures": ["Olmo2ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0},
    **{"eos_token_id": 100257, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02},
    **{"intermediate_size": 8192, "max_position_embeddings": 4096, "model_type": "olmo2"},
    **{"num_attention_heads": 16, "num_hidden_layers": 16, "num_key_value_heads": 16, "pad_token_id": 100277},
    **{"rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 500000, "tie_word_embeddings": False},
    **{"torch_dtype": "float32", "transformers_version": "4.50.0.dev0", "use_cache": True, "vocab_size": 100352},
}
_PHI3 = {
    **{"_name_or_path": "Phi-3-mini-4k-instruct", "architectures": ["Phi3ForCausalLM"], "attention_bias": False},
    **{"attention_dropout": 0.0, "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"}, "bos_token_id": 1},
    **{"embd_pdrop": 0.0, "eos_token_id": 32000, "hidden_act": "silu", "hidden_size": 3072},
    **{"initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 4096, "model_type": "phi3"},
    **{"num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32},
    **{"original_max_position_embeddings": 4096, "pad_token_id": 32000, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05},
    **{"rope_scaling": None, "rope_theta": 10000.0, "sliding_window": 2047, "tie_word_embeddings": False},
    **{"torch_dtype": "bfloat16", "transformers_version": "4.40.2", "use_cache": True, "vocab_size": 32064},
}
# The published factors are other numbers, 48 of each kind.
_PHI3_LONG = _PHI3 | {
    **{"max_position_embeddings": 131072, "sliding_window": 262144},
    "rope_scaling": {
        **{"long_factor": [1.05 + 1.3 * i for i in range(48)], "short_factor": [1.05 + 0.04 * i for i in range(48)]},
        "type": "longrope",
    },
}
_PHI4 = {key: value for key, value in _PHI3.items() if key not in ("_name_or_path", "auto_map")} | {
    **{"bos_token_id": 100257, "eos_token_id": 100265, "hidden_size": 5120, "intermediate_size": 17920},
    **{"max_position_embeddings": 16384, "num_attention_heads": 40, "num_hidden_layers": 40},
    **{"num_key_value_heads": 10, "original_max_position_embeddings": 16384, "pad_token_id": 100349},
    **{"rope_theta": 250000, "sliding_window": None, "transformers_version": "4.47.0", "vocab_size": 100352},
}
_PHI4_MINI = _PHI4 | {
    **{"full_attn_mod": 1, "interpolate_factor": 1, "lm_head_bias": False, "mlp_bias": False, "hidden_size": 3072},
    **{"intermediate_size": 8192, "num_attention_heads": 24, "num_hidden_layers": 32, "num_key_value_heads": 8},
    **{"partial_rotary_factor": 0.75, "rope_theta": 10000.0, "sliding_window": 262144, "tie_word_embeddings": True},
    **{"max_position_embeddings": 131072, "original_max_position_embeddings": 4096, "vocab_size": 200064},
    "rope_scaling": {
        **{"long_factor": [1.0 + 0.7 * i for i in range(48)], "short_factor": [1.0] * 48},
        "type": "longrope",
    },
}
_PHI2 = {
    **{"_name_or_path": "microsoft/phi-2", "architectures": ["PhiForCausalLM"], "attention_dropout": 0.0},
    **{"bos_token_id": 50256, "embd_pdrop": 0.0, "eos_token_id": 50256, "hidden_act": "gelu_new"},
    **{"hidden_size": 2560, "initializer_range": 0.02, "intermediate_size": 10240, "layer_norm_eps": 1e-05},
    **{"max_position_embeddings": 2048, "model_type": "phi", "num_attention_heads": 32, "num_hidden_layers": 32},
    **{"num_key_value_heads": 32, "partial_rotary_factor": 0.4, "qk_layernorm": False, "resid_pdrop": 0.1},
    **{"rope_scaling": None, "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "float16"},
    **{"transformers_version": "4.37.0", "use_cache": True, "vocab_size": 51200},
}
_SMOLLM3 = {
    **{"architectures": ["SmolLM3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0},
    **{"bos_token_id": None, "eos_token_id": 128012, "hidden_act": "silu", "hidden_size": 2048},
    **{"initializer_range": 0.02, "intermediate_size": 11008, "layer_types": ["full_attention"] * 36},
    **{"max_position_embeddings": 65536, "max_window_layers": 28, "mlp_bias": False, "model_type": "smollm3"},
    **{"no_rope_layer_interval": 4, "no_rope_layers": [1, 1, 1, 0] * 9, "num_attention_heads": 16},
    **{"num_hidden_layers": 36, "num_key_value_heads": 4, "pad_token_id": 128004, "pretraining_tp": 2},
    **{"rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 5000000.0, "sliding_window": None},
    **{"tie_word_embeddings": True, "torch_dtype": "bfloat16", "transformers_version": "4.54.0.dev0"},
    **{"use_cache": True, "use_sliding_window": False, "vocab_size": 128256},
}
_GPT2_MEDIUM = {
    **{"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1},
    **{"bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02},
    **{"layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 1024, "n_head": 16, "n_layer": 24},
    **{"n_positions": 1024, "n_special": 0, "predict_special_tokens": True, "resid_pdrop": 0.1},
    **{"summary_activation": None, "summary_first_dropout": 0.1, "summary_proj_to_labels": True},
    **{"summary_type": "cls_index", "summary_use_proj": True, "vocab_size": 50257},
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
}
_OPT = {
    **{"_name_or_path": "facebook/opt-350m", "activation_dropout": 0.0, "activation_function": "relu"},
    **{"architectures": ["OPTForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 2, "do_layer_norm_before": False},
    **{"dropout": 0.1, "eos_token_id": 2, "ffn_dim": 4096, "hidden_size": 1024, "init_std": 0.02, "layerdrop": 0.0},
    **{"max_position_embeddings": 2048, "model_type": "opt", "num_attention_heads": 16, "num_hidden_layers": 24},
    **{"pad_token_id": 1, "prefix": "</s>", "torch_dtype": "float16", "transformers_version": "4.20.0.dev0"},
    **{"use_cache": True, "vocab_size": 50272, "word_embed_proj_dim": 512},
}

CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2-medium": _GPT2_MEDIUM,
    "facebook/opt-350m": _OPT,
    "meta-llama/Llama-3.1-8B": _LLAMA31,
    "huggyllama/llama-7b": _LLAMA1,
    "HuggingFaceTB/SmolLM2-135M": _SMOLLM2,
    "mistralai/Mistral-7B-v0.1": _MISTRAL,
    "Qwen/Qwen2.5-7B": _QWEN25,
    "Qwen/Qwen3-0.6B": _QWEN3,
    "google/gemma-2-2b": _GEMMA2,
    "google/gemma-3-1b-pt": _GEMMA3,
    "google/gemma-3-270m": _GEMMA3_LATER,
    "google/gemma-3-270m as of transformers 5": _GEMMA3_NEST,
    "EleutherAI/pythia-160m": _PYTHIA,
    "allenai/OLMo-2-0425-1B": _OLMO2,
    "microsoft/Phi-3-mini-4k-instruct": _PHI3,
    "microsoft/Phi-3-mini-128k-instruct": _PHI3_LONG,
    "microsoft/phi-4": _PHI4,
    "microsoft/Phi-4-mini-instruct": _PHI4_MINI,
    "microsoft/phi-2": _PHI2,
    "HuggingFaceTB/SmolLM3-3B-Base": _SMOLLM3,
}
