"""The model families: which architecture has which module, configuration and tables of names."""

import dataclasses
import pathlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from knnprompt_jax import errors
from knnprompt_jax.models import bert, conversion, decoder, gpt2, hf_config, hub, opt
from knnprompt_jax.models import config as config_lib

Model = Any  # A decoder.Decoder or bert.Encoder, as the family of its config says.


@dataclasses.dataclass(frozen=True)
class Family:
    """What is known of one `model_type`; `architecture` is the class that `transformers` loads an export with."""

    architecture: str
    module: Callable[..., Model]
    config_from_hf: Callable[[hf_config.Json], config_lib.DecoderConfig]
    published: Mapping[str, config_lib.DecoderConfig]
    table: conversion.Table
    flax_table: conversion.Table


FAMILIES = {
    "gpt2": Family(
        "GPT2LMHeadModel", decoder.Decoder, gpt2.config_from_hf, gpt2.PUBLISHED, gpt2.TABLE, gpt2.FLAX_TABLE
    ),
    "opt": Family("OPTForCausalLM", decoder.Decoder, opt.config_from_hf, opt.PUBLISHED, opt.TABLE, opt.FLAX_TABLE),
    "bert": Family("BertModel", bert.Encoder, bert.config_from_hf, bert.PUBLISHED, bert.TABLE, bert.FLAX_TABLE),
}
LANGUAGE_MODELS = ("gpt2", "opt")
ENCODERS = ("bert",)
PUBLISHED = {name: config for family in LANGUAGE_MODELS for name, config in FAMILIES[family].published.items()}


def config_from_hf(hf: hf_config.Json, families: Collection[str] = LANGUAGE_MODELS) -> config_lib.DecoderConfig:
    """The model that a config.json describes, which must be one of these families.

    Raises:
        UserError: the architecture or one of its switches is not supported.
    """
    name = hf.get("model_type")
    if not isinstance(name, str) or name not in families:
        raise errors.UserError(f"config.json: model_type={name!r} is not supported; choices: {', '.join(families)}")
    if hf.get("quantization_config") is not None:
        raise errors.UserError("config.json: quantization_config is not supported; only unquantised weights are")
    return FAMILIES[name].config_from_hf(hf)


def published(name: str) -> config_lib.DecoderConfig:
    """The decoder of a published language model by its Hub name, without asking the Hub.

    Raises:
        UserError: no such name.
    """
    if name not in PUBLISHED:
        raise errors.UserError(f"no published shape is called {name!r}; choices: {', '.join(PUBLISHED)}")
    return PUBLISHED[name]


def describe(
    name_or_folder: str, revision: str | None = None, families: Collection[str] = LANGUAGE_MODELS
) -> tuple[config_lib.DecoderConfig, pathlib.Path]:
    """The model that a Hub name or a folder holds, which must be one of these families, and the folder with its weights.

    Weights of unsupported models are not fetched.

    Raises:
        UserError: no such model, the Hub cannot be reached, or the model is not supported.
    """
    hf = hf_config.read(hub.resolve(name_or_folder, revision, config_only=True))
    try:
        config = config_from_hf(hf, families)
    except errors.UserError as error:
        raise errors.UserError(f"{name_or_folder}: {error}") from None
    return config, hub.resolve(name_or_folder, revision)
