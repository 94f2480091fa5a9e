"""Small random models of `transformers`, and folders with them in each published layout."""

import copy
import json
import pathlib
import re
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
import transformers
from flax import serialization, traverse_util

from knnprompt_jax.models import decoder, registry
from tests.models.shapes import SHAPES

# Tensors of old files that are not weights; in most families they are frequencies.
BUFFERS = {
    "opt": ["decoder.version"],
    "gpt2": ["h.0.attn.bias", "h.0.attn.masked_bias"],
    "gpt_neox": [f"layers.1.attention.{name}" for name in ("bias", "masked_bias", "rotary_emb.inv_freq")],
}


def make(shape: str) -> transformers.PreTrainedModel:
    return build(SHAPES[shape], sum(map(ord, shape)))


def build(config: Any, seed: int, kind: type = transformers.AutoModelForCausalLM) -> transformers.PreTrainedModel:
    """Return a model with peaked distributions, its own biases and normalisation; its weights are exact in float16.

    Weights of normalisation are multiples of 1/512, which stay exact when 1 is added.
    """
    model = kind.from_config(copy.deepcopy(config), attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            is_norm = re.search(r"ln_|norm", name, re.IGNORECASE) and name.endswith("weight")
            table = re.search(r"wte|wpe|embed|lm_head", name)
            scale = 0.5 if table else 1.5 / model.config.hidden_size**0.5
            center = 0 if model.config.model_type.startswith("gemma") else 1  # Gemma adds the 1 itself.
            weight.copy_(center + (150 * noise).round() / 512 if is_norm else (scale * noise).half().float())
    return model


def log_probabilities(model: transformers.PreTrainedModel, tokens_BT: np.ndarray) -> np.ndarray:
    """Return PyTorch's next-token log-probabilities [B, T, V]."""
    with torch.no_grad():
        return model(torch.as_tensor(tokens_BT)).logits.log_softmax(-1).numpy()


def state(model: transformers.PreTrainedModel) -> dict[str, torch.Tensor]:
    """Return the tensors of a published file under its names, without a tied head."""
    tensors = {published_name(model, key): value.contiguous() for key, value in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del tensors[published_name(model, "lm_head.weight")]
    return tensors


def published_name(model: transformers.PreTrainedModel, key: str) -> str:
    """Return the name of a tensor in files; `transformers` has another name for GPT-NeoX's head in memory."""
    return key.replace("lm_head", "embed_out") if model.config.model_type == "gpt_neox" else key


def write_safetensors(model: transformers.PreTrainedModel, folder: pathlib.Path, sharded: bool) -> None:
    model.save_pretrained(folder, max_shard_size="12KB" if sharded else "1GB")


def write_torch(model: transformers.PreTrainedModel, folder: pathlib.Path, sharded: bool) -> None:
    """Write float16 with old names: no prefix (OPT's begin at `decoder.`), but with masks and rotary frequencies."""
    tensors = {re.sub(r"^(model|transformer|gpt_neox)\.", "", key): value.half() for key, value in state(model).items()}
    for name in BUFFERS.get(model.config.model_type, ["layers.1.self_attn.rotary_emb.inv_freq"]):
        tensors[name] = torch.ones(1, 1, 29, 29).tril().to(torch.uint8)
    _write(tensors, folder, sharded, "pytorch_model", ".bin", torch.save)
    model.config.save_pretrained(folder)


def write_flax(model: transformers.PreTrainedModel, folder: pathlib.Path, sharded: bool, dtype=np.float16) -> None:
    """Write `dtype` as FlaxGPT2LMHeadModel and FlaxOPTForCausalLM did."""
    arrays = dict(_flax(key, value.numpy().astype(dtype)) for key, value in state(model).items())
    _write(arrays, folder, sharded, "flax_model", ".msgpack", _save_flax)
    model.config.save_pretrained(folder)


def _flax(key: str, array: np.ndarray) -> tuple[str, np.ndarray]:
    path, kind = key.rsplit(".", 1)
    path = path.replace(".", "/")
    if kind == "bias":
        return f"{path}/bias", array
    if re.search(r"wte|wpe|embed_|_embeddings", path):
        return f"{path}/embedding", array
    if re.search(r"ln_|layer_norm|LayerNorm", path):
        return f"{path}/scale", array
    # All families transpose: Conv1D (in, out) is kept (out, in) by FlaxGPT2, Linear (out, in) as Dense (in, out).
    return f"{path}/kernel", array.T


def _save_flax(arrays: dict[str, np.ndarray], path: pathlib.Path) -> None:
    path.write_bytes(serialization.msgpack_serialize(traverse_util.unflatten_dict(arrays, sep="/")))


def _write(tensors: dict, folder: pathlib.Path, sharded: bool, stem: str, suffix: str, save: Callable) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if not sharded:
        save(tensors, folder / f"{stem}{suffix}")
        return
    keys = list(tensors)
    shards = {f"{stem}-{i + 1:05}-of-00003{suffix}": keys[i::3] for i in range(3)}
    for name, members in shards.items():
        save({key: tensors[key] for key in members}, folder / name)
    index = {"metadata": {}, "weight_map": {key: name for name, members in shards.items() for key in members}}
    (folder / f"{stem}{suffix}.index.json").write_text(json.dumps(index))


FORMATS = {"safetensors": write_safetensors, "torch": write_torch, "flax": write_flax}


def load(folder: pathlib.Path, dtype: jnp.dtype = jnp.float32) -> decoder.Decoder:
    """Load our decoder from a folder."""
    config, folder = registry.describe(str(folder))
    return registry.load(folder, config, dtype)
