"""Write tiny random models of `transformers` as GGUF files in the layout of llama.cpp's converter.

Names of tensors are spelled out here, so that a wrong one in the reader's table of names is found.
"""

import copy
import math
import pathlib
from collections.abc import Mapping
from typing import Any

import gguf
import numpy as np
import torch
import transformers

_SIZES = {"hidden_size": 96, "intermediate_size": 160, "num_attention_heads": 6, "vocab_size": 101}
_SMALL = _SIZES | {"num_hidden_layers": 3, "max_position_embeddings": 59, "pad_token_id": None}
_GROUPED = _SMALL | {"num_key_value_heads": 2}
_LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
_PHI3_FACTORS = {"short_factor": [1.0, 1.25, 2.0, 2.5, 3.0, 4.5], "long_factor": [1.5, 2.5, 3.5, 6.5, 8.5, 16.5]}
_LONGROPE = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 23, **_PHI3_FACTORS}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e6,
    "factor": 4.0,
    "original_max_position_embeddings": 13,
    "beta_fast": 28.0,
}

CONFIGS = {
    "llama": transformers.LlamaConfig(**_GROUPED, rope_parameters={"rope_type": "default", "rope_theta": 5e5}),
    "llama-bias": transformers.LlamaConfig(**_GROUPED, attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "llama-3.1": transformers.LlamaConfig(
        **_GROUPED | {"max_position_embeddings": 131072},
        rope_parameters=_LLAMA3 | {"rope_theta": 5e5, "original_max_position_embeddings": 8192},
    ),
    "llama-linear": transformers.LlamaConfig(
        **_GROUPED, rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 2.5}
    ),
    "mistral": transformers.MistralConfig(**_GROUPED, sliding_window=7, head_dim=32),
    "qwen2": transformers.Qwen2Config(**_GROUPED, tie_word_embeddings=True, rope_parameters=_YARN),
    "qwen3": transformers.Qwen3Config(**_GROUPED, head_dim=32),
    "gemma2": transformers.Gemma2Config(
        **_GROUPED | {"num_hidden_layers": 26}, head_dim=32, query_pre_attn_scalar=32, sliding_window=7
    ),
    "gemma3": transformers.Gemma3TextConfig(
        **_GROUPED | {"num_hidden_layers": 62}, head_dim=32, query_pre_attn_scalar=16, sliding_window=7
    ),
    "phi3": transformers.Phi3Config(
        **_GROUPED, rope_parameters=_LONGROPE | {"partial_rotary_factor": 0.75}, original_max_position_embeddings=23
    ),
    "phi3-short": transformers.Phi3Config(
        **_GROUPED, sliding_window=47, original_max_position_embeddings=59, tie_word_embeddings=True
    ),
    "olmo2": transformers.Olmo2Config(**_GROUPED, rope_parameters={"rope_type": "default", "rope_theta": 5e5}),
    "smollm3": transformers.SmolLM3Config(**_GROUPED | {"num_hidden_layers": 5}),
    "gptneox": transformers.GPTNeoXConfig(**_SMALL, rope_parameters={"rope_theta": 1e4, "partial_rotary_factor": 0.25}),
    "gpt2": transformers.GPT2Config(n_embd=96, n_inner=160, n_layer=3, n_head=6, vocab_size=101, n_positions=59),
}

# From llama.cpp's names to those of `transformers`, in a block and outside it.
_LLAMA = {
    **{"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj"},
    **{"attn_output": "self_attn.o_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"},
    **{"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"},
}
_QK_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_AFTER = {"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
_GEMMA = _LLAMA | _AFTER | {"ffn_norm": "pre_feedforward_layernorm"}
_BLOCKS = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "smollm3"), _LLAMA),
    **{"qwen3": _LLAMA | _QK_NORMS, "gemma2": _GEMMA, "gemma3": _GEMMA | _QK_NORMS},
    "phi3": {
        **{"attn_qkv": "self_attn.qkv_proj", "attn_output": "self_attn.o_proj", "attn_norm": "input_layernorm"},
        **{"ffn_norm": "post_attention_layernorm", "ffn_up": "mlp.gate_up_proj", "ffn_down": "mlp.down_proj"},
    },
    "olmo2": {k: v for k, v in _LLAMA.items() if k not in ("attn_norm", "ffn_norm")} | _QK_NORMS | _AFTER,
    "gptneox": {
        **{"attn_qkv": "attention.query_key_value", "attn_output": "attention.dense", "attn_norm": "input_layernorm"},
        **{"ffn_norm": "post_attention_layernorm", "ffn_up": "mlp.dense_h_to_4h", "ffn_down": "mlp.dense_4h_to_h"},
    },
    "gpt2": {
        **{"attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "attn_norm": "ln_1"},
        **{"ffn_norm": "ln_2", "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
    },
}
_OUTSIDE = {
    "gptneox": ("gpt_neox.layers", {"token_embd": "gpt_neox.embed_in", "output_norm": "gpt_neox.final_layer_norm"}),
    "gpt2": (
        "transformer.h",
        {"token_embd": "transformer.wte", "position_embd": "transformer.wpe", "output_norm": "transformer.ln_f"},
    ),
}
_HEADS = {"gptneox": "embed_out"}


def make(shape: str) -> torch.nn.Module:
    """Return a random model. Norms are random too, in multiples of 1/1024, which stay exact when 1 is added."""
    torch.manual_seed(sorted(CONFIGS).index(shape))
    model = transformers.AutoModelForCausalLM.from_config(copy.deepcopy(CONFIGS[shape]), attn_implementation="eager")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or "ln_" in name or name.endswith("bias"):
                parameter.copy_(torch.randint(-400, 401, parameter.shape) / 1024)
    return model.eval()


def arch_of(shape: str) -> str:
    """Return the architecture in a GGUF file."""
    return "llama" if shape == "mistral" else shape.partition("-")[0]


def names(shape: str) -> dict[str, str]:
    """Return the name in `transformers` for the name in the file of each tensor."""
    arch = arch_of(shape)
    stem, outside = _OUTSIDE.get(
        arch, ("model.layers", {"token_embd": "model.embed_tokens", "output_norm": "model.norm"})
    )
    both = outside | {"output": _HEADS.get(arch, "lm_head")}
    for layer in range(CONFIGS[shape].num_hidden_layers):
        both |= {f"blk.{layer}.{ours}": f"{stem}.{layer}.{theirs}" for ours, theirs in _BLOCKS[arch].items()}
    there = make_state(make(shape))
    whole = {f"{k}.{end}": f"{v}.{end}" for k, v in both.items() for end in ("weight", "bias")}
    return {ours: theirs for ours, theirs in whole.items() if theirs in there}


def make_state(model: torch.nn.Module) -> dict[str, np.ndarray]:
    """Return the model's tensors under the names of published files, without a tied head."""
    state = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    head = state.pop("lm_head.weight")
    if not model.config.tie_word_embeddings:
        state["embed_out.weight" if model.config.model_type == "gpt_neox" else "lm_head.weight"] = head
    return state


def tensors(shape: str, model: torch.nn.Module) -> dict[str, np.ndarray]:
    """Return the tensors in the layout and under the names of llama.cpp's converter."""
    state, config = make_state(model), model.config
    arrays = {ours: _lay_out(arch_of(shape), ours, state.pop(theirs), config) for ours, theirs in names(shape).items()}
    assert not state, f"no name in the file for {list(state)}"
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "llama3":
        arrays["rope_freqs.weight"] = _llama3_factors(config)
    if rope.get("rope_type") == "longrope":
        arrays["rope_factors_short.weight"] = np.float32(rope["short_factor"])
        arrays["rope_factors_long.weight"] = np.float32(rope["long_factor"])
    return arrays


def _lay_out(arch: str, name: str, array: np.ndarray, config: Any) -> np.ndarray:
    part = name.rpartition("blk.")[2].partition(".")[2].rpartition(".")[0]
    if arch in ("llama", "smollm3") and part in ("attn_q", "attn_k"):
        heads = config.num_attention_heads if part == "attn_q" else config.num_key_value_heads
        halves = array.reshape(heads, 2, array.shape[0] // heads // 2, *array.shape[1:])
        return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(array.shape)
    if arch in ("gemma2", "gemma3") and name.endswith("norm.weight"):
        return array + np.float32(1)
    if arch == "gpt2" and array.ndim == 2 and name.startswith("blk."):
        return np.ascontiguousarray(array.T)
    if arch == "gptneox" and part == "attn_qkv":
        by_head = array.reshape(config.num_attention_heads, 3, -1, *array.shape[1:])
        return np.concatenate([by_head[:, i].reshape(-1, *array.shape[1:]) for i in range(3)])
    return array


def _llama3_factors(config: Any) -> np.ndarray:
    rope, size = config.rope_parameters, config.head_dim
    factors = []
    for frequency in 1 / rope["rope_theta"] ** (np.arange(0, size, 2) / size):
        wave, old = 2 * math.pi / frequency, rope["original_max_position_embeddings"]
        smooth = (old / wave - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
        factors.append(1 / ((1 - min(max(smooth, 0), 1)) / rope["factor"] + min(max(smooth, 0), 1)))
    return np.float32(factors)


def metadata(shape: str) -> dict[str, Any]:
    """Return the metadata under the architecture's prefix."""
    config, arch = CONFIGS[shape], arch_of(shape)
    rope = getattr(config, "rope_parameters", None) or {}
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    values: dict[str, Any] = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.n_inner if arch == "gpt2" else config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
    }
    if arch in ("gpt2", "gptneox"):
        values["attention.layer_norm_epsilon"] = getattr(config, "layer_norm_epsilon", None) or config.layer_norm_eps
    else:
        values["attention.layer_norm_rms_epsilon"] = config.rms_norm_eps
        values["attention.head_count_kv"] = config.num_key_value_heads
    if arch == "gptneox":
        values |= {"use_parallel_residual": True, "rope.dimension_count": int(head * rope["partial_rotary_factor"])}
    if "full_attention" in rope:
        rope = rope["full_attention"]
    if arch not in ("gpt2", "gptneox", "gemma2"):
        values["rope.freq_base"] = rope["rope_theta"]
    if arch in ("llama", "smollm3"):
        values |= {"vocab_size": config.vocab_size, "rope.dimension_count": head}
    if hasattr(config, "head_dim") and config.head_dim is not None:
        values |= {"attention.key_length": head, "attention.value_length": head}
    if arch in ("gemma2", "gemma3") or shape == "mistral":
        values["attention.sliding_window"] = config.sliding_window
    if arch == "gemma2":
        values |= {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    if arch == "phi3":
        turned = int(rope["partial_rotary_factor"] * head)
        values |= {"rope.dimension_count": turned, "attention.sliding_window": config.sliding_window or 0}
        values["rope.scaling.original_context_length"] = config.original_max_position_embeddings
    return {f"{arch}.{key}": value for key, value in (values | _scaling(rope, config)).items()}


def _scaling(rope: Mapping[str, Any], config: Any) -> dict[str, Any]:
    kind = rope.get("rope_type")
    if kind == "linear":
        return {"rope.scaling.type": "linear", "rope.scaling.factor": rope["factor"]}
    if kind == "yarn":
        own = {"type": "yarn", "factor": rope["factor"], "yarn_beta_fast": rope["beta_fast"]}
        own["original_context_length"] = rope["original_max_position_embeddings"]
        return {f"rope.scaling.{key}": value for key, value in own.items()}
    if kind == "longrope":
        old = rope["original_max_position_embeddings"]
        factor = math.sqrt(1 + math.log(config.max_position_embeddings / old) / math.log(old))
        return {"rope.scaling.attn_factor": factor}
    return {}


def write(path: pathlib.Path, shape: str, model: torch.nn.Module, kind: str = "F32") -> None:
    """Write a model; matrices whose rows divide into the blocks of `kind` have that type, the rest float32."""
    write_file(path, arch_of(shape), metadata(shape), tensors(shape, model), kind)


def write_file(
    path: pathlib.Path, arch: str, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray], kind: str = "F32"
) -> None:
    """Write a file: integers as uint32, other numbers as float32, without values that are None."""
    writer = gguf.GGUFWriter(path, arch)
    for key, value in values.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif value is not None:
            writer.add_array(key, list(value))
    for name, array in arrays.items():
        quantisation = kind_of(array, kind)
        writer.add_tensor(name, gguf.quants.quantize(array, quantisation), raw_dtype=quantisation)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def kind_of(array: np.ndarray, kind: str) -> gguf.GGMLQuantizationType:
    quantisation = gguf.GGMLQuantizationType[kind]
    fits = array.ndim > 1 and array.shape[-1] % gguf.GGML_QUANT_SIZES[quantisation][0] == 0
    return quantisation if fits else gguf.GGMLQuantizationType.F32
