"""The model families: which architecture has which module, configuration and tables of names."""

import dataclasses
import math
import pathlib
import types
from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from knnprompt_jax import errors
from knnprompt_jax.models import (
    bert,
    conversion,
    decoder,
    gemma2,
    gemma3_text,
    gpt2,
    gpt_neox,
    hf_config,
    hub,
    llama,
    mistral,
    olmo2,
    opt,
    phi,
    phi3,
    qwen2,
    qwen3,
    smollm3,
)
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models.gguf import config as gguf_config

Model = Any  # A decoder.Decoder or bert.Encoder, as the family of its config says.


@dataclasses.dataclass(frozen=True)
class Family:
    """What is known of one `model_type`; `architecture` is the class that `transformers` loads an export with.

    `published` holds the config.json of published sizes, as far as it says something of the shape.
    """

    architecture: str
    module: Callable[..., Model]
    config_from_hf: Callable[[hf_config.Fields], config_lib.DecoderConfig]
    published: Mapping[str, hf_config.Json]
    table: conversion.Table
    flax_table: conversion.Table | None = None


def _decoder(architecture: str, family: types.ModuleType) -> Family:
    flax_table = getattr(family, "FLAX_TABLE", None)
    return Family(architecture, decoder.Decoder, family.config_from_hf, family.PUBLISHED, family.TABLE, flax_table)


DECODERS = {
    "gpt2": _decoder("GPT2LMHeadModel", gpt2),
    "opt": _decoder("OPTForCausalLM", opt),
    "llama": _decoder("LlamaForCausalLM", llama),
    "mistral": _decoder("MistralForCausalLM", mistral),
    "qwen2": _decoder("Qwen2ForCausalLM", qwen2),
    "qwen3": _decoder("Qwen3ForCausalLM", qwen3),
    "gemma2": _decoder("Gemma2ForCausalLM", gemma2),
    "gemma3_text": _decoder("Gemma3ForCausalLM", gemma3_text),
    "gpt_neox": _decoder("GPTNeoXForCausalLM", gpt_neox),
    "olmo2": _decoder("Olmo2ForCausalLM", olmo2),
    "phi": _decoder("PhiForCausalLM", phi),
    "phi3": _decoder("Phi3ForCausalLM", phi3),
    "smollm3": _decoder("SmolLM3ForCausalLM", smollm3),
}
FAMILIES = {
    **DECODERS,
    "bert": Family("BertModel", bert.Encoder, bert.config_from_hf, bert.PUBLISHED, bert.TABLE, bert.FLAX_TABLE),
}
LANGUAGE_MODELS = tuple(DECODERS)
ENCODERS = ("bert",)
PUBLISHED = {name: hf for family in DECODERS.values() for name, hf in family.published.items()}


def config_from_hf(hf: hf_config.Json, families: Collection[str] = LANGUAGE_MODELS) -> config_lib.DecoderConfig:
    """The model that a config.json describes, which must be one of these families.

    Raises:
        UserError: the architecture or one of its switches is not supported, or a key is not known.
    """
    name = hf.get("model_type")
    if not isinstance(name, str) or name not in families:
        raise errors.UserError(f"config.json: model_type={name!r} is not supported; choices: {', '.join(families)}")
    if hf.get("quantization_config") is not None:
        raise errors.UserError("config.json: quantization_config is not supported; only unquantised weights are")
    fields = hf_config.Fields(hf)
    try:
        config = FAMILIES[name].config_from_hf(fields)
        fields.refuse_unread()
    except errors.UserError:
        raise
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        raise errors.UserError(f"config.json: it cannot be understood: {error}") from error
    return config


def num_parameters(config: config_lib.DecoderConfig) -> int:
    """Parameters of the whole model; a tied head counts once."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(abstract(config)))


def abstract(config: config_lib.DecoderConfig, dtype: jnp.dtype = jnp.float32) -> Model:
    """The model without values: shapes and types of its weights."""
    module = FAMILIES[config.family].module
    return nnx.eval_shape(lambda: module(config, nnx.Rngs(0), dtype))


def published(name: str) -> config_lib.DecoderConfig:
    """The decoder of a published language model by its Hub name, without asking the Hub. Raises UserError: no such name."""
    if name not in PUBLISHED:
        raise errors.UserError(f"no published shape is called {name!r}; choices: {', '.join(PUBLISHED)}")
    return config_from_hf(PUBLISHED[name])


def describe(
    name_or_folder: str, revision: str | None = None, families: Collection[str] = LANGUAGE_MODELS
) -> tuple[config_lib.DecoderConfig, pathlib.Path]:
    """The model of a name, folder or file (`hub.resolve`), which must be of one of these families, and where its weights lie.

    Weights of unsupported models are not fetched.

    Raises:
        UserError: no such model, the Hub cannot be reached, or the model is not supported.
    """
    path = hub.resolve(name_or_folder, revision, config_only=True)
    try:
        hf = gguf_config.config_json(path) if path.suffix == ".gguf" else hf_config.read(path)
        config = config_from_hf(hf, families)
    except errors.UserError as error:
        named = str(error).startswith(f"{path}: ")
        raise errors.UserError(str(error) if named else f"{name_or_folder}: {error}") from None
    return config, hub.resolve(name_or_folder, revision)
