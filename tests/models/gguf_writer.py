"""Write tiny random models of `transformers` as GGUF files in the layout of llama.cpp's converter."""

import pathlib
from collections.abc import Mapping
from typing import Any

import gguf
import numpy as np
import transformers

from tests.models import torch_models

_SIZES = {"hidden_size": 96, "intermediate_size": 160, "num_attention_heads": 6, "vocab_size": 101}
_SMALL = _SIZES | {"num_hidden_layers": 3, "max_position_embeddings": 59, "pad_token_id": None}
_GROUPED = _SMALL | {"num_key_value_heads": 2}
_LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
_LLAMA3 |= {"rope_theta": 5e5, "original_max_position_embeddings": 8192}
_WINDOW = {"head_dim": 32, "sliding_window": 7}

CONFIGS = {
    "llama": transformers.LlamaConfig(**_GROUPED, rope_parameters={"rope_type": "default", "rope_theta": 5e5}),
    "llama-bias": transformers.LlamaConfig(**_GROUPED, attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "llama-3.1": transformers.LlamaConfig(**_GROUPED | {"max_position_embeddings": 131072}, rope_parameters=_LLAMA3),
    "llama-linear": transformers.LlamaConfig(
        **_GROUPED, rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 2.5}
    ),
    "mistral": transformers.MistralConfig(**_GROUPED, **_WINDOW),
    "qwen2": transformers.Qwen2Config(**_GROUPED, tie_word_embeddings=True),
    "qwen3": transformers.Qwen3Config(**_GROUPED, head_dim=32),
    "gemma3": transformers.Gemma3TextConfig(
        **_GROUPED | {"num_hidden_layers": 62}, **_WINDOW, query_pre_attn_scalar=16
    ),
}
# llama.cpp's keys of the values that a config has under one name.
_KEYS = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.key_length": "head_dim",
    "attention.value_length": "head_dim",
    "attention.sliding_window": "sliding_window",
}
_OTHERS: dict[str, dict[str, Any]] = {
    "llama": {"vocab_size": 101, "rope.dimension_count": 16},
    "llama-linear": {"rope.scaling.type": "linear", "rope.scaling.factor": 2.5},
}


def make(shape: str) -> transformers.PreTrainedModel:
    return torch_models.build(CONFIGS[shape], sorted(CONFIGS).index(shape))


def arch_of(shape: str) -> str:
    """Return the architecture in a GGUF file."""
    return "llama" if shape == "mistral" else shape.partition("-")[0]


def make_state(model: transformers.PreTrainedModel) -> dict[str, np.ndarray]:
    """Return the model's tensors under the names of published files, without a tied head."""
    return {name: value.numpy() for name, value in torch_models.state(model).items()}


def tensors(shape: str, model: transformers.PreTrainedModel) -> dict[str, np.ndarray]:
    """Return the tensors in the layout and under the names of llama.cpp's converter."""
    arch, config = arch_of(shape), model.config
    number = next(number for number, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
    table = gguf.get_tensor_name_map(number, config.num_hidden_layers)
    named = {table.get_name(name, (".weight", ".bias")): array for name, array in make_state(model).items()}
    arrays = {name: _lay_out(arch, name, array, config) for name, array in named.items()}
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "llama3":
        plain = rope["rope_theta"] ** (-np.arange(0, config.head_dim, 2) / config.head_dim)
        arrays["rope_freqs.weight"] = np.float32(plain / model.model.rotary_emb.inv_freq.numpy())
    return arrays


def _lay_out(arch: str, name: str, array: np.ndarray, config: Any) -> np.ndarray:
    part = name.rpartition("blk.")[2].partition(".")[2].rpartition(".")[0]
    if arch == "llama" and part in ("attn_q", "attn_k"):
        heads = config.num_attention_heads if part == "attn_q" else config.num_key_value_heads
        halves = array.reshape(heads, 2, array.shape[0] // heads // 2, *array.shape[1:])
        return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(array.shape)
    if arch == "gemma3" and name.endswith("norm.weight"):
        return array + np.float32(1)
    return array


def metadata(shape: str) -> dict[str, Any]:
    """Return the metadata under the architecture's prefix."""
    config = CONFIGS[shape]
    values = {key: getattr(config, name, None) for key, name in _KEYS.items()}
    rope = getattr(config, "rope_parameters", None) or {}
    values["rope.freq_base"] = rope.get("full_attention", rope).get("rope_theta")
    return {f"{arch_of(shape)}.{key}": value for key, value in (values | _OTHERS.get(shape, {})).items()}


def write(path: pathlib.Path, shape: str, model: transformers.PreTrainedModel, kind: str = "F32") -> None:
    """Write a model; matrices whose rows divide into the blocks of `kind` have that type, the rest float32."""
    write_file(path, arch_of(shape), metadata(shape), tensors(shape, model), kind)


def write_file(
    path: pathlib.Path, arch: str, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray], kind: str = "F32"
) -> None:
    """Write a file without values that are None."""
    writer = gguf.GGUFWriter(path, arch)
    for key, value in values.items():
        if value is not None:
            writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
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
