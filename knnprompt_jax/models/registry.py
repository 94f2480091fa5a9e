"""The model families: which architecture has which module, configuration and tables of names."""

import dataclasses
import pathlib
from collections.abc import Callable

from knnprompt_jax import errors
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import conversion, gpt2, hf_config, hub, opt


@dataclasses.dataclass(frozen=True)
class Family:
    """What is known of one `model_type`; `architecture` is the class that `transformers` loads an export with."""

    architecture: str
    config_from_hf: Callable[[hf_config.Json], config_lib.DecoderConfig]
    published: dict[str, config_lib.DecoderConfig]
    table: conversion.Table
    flax_table: conversion.Table


FAMILIES = {
    "gpt2": Family("GPT2LMHeadModel", gpt2.config_from_hf, gpt2.PUBLISHED, gpt2.TABLE, gpt2.FLAX_TABLE),
    "opt": Family("OPTForCausalLM", opt.config_from_hf, opt.PUBLISHED, opt.TABLE, opt.FLAX_TABLE),
}
PUBLISHED = {name: config for family in FAMILIES.values() for name, config in family.published.items()}


def config_from_hf(hf: hf_config.Json) -> config_lib.DecoderConfig:
    """The decoder that a config.json describes.

    Raises:
        UserError: the architecture or one of its switches is not supported.
    """
    name = hf.get("model_type")
    if not isinstance(name, str) or name not in FAMILIES:
        raise errors.UserError(f"config.json: model_type={name!r} is not supported; choices: {', '.join(FAMILIES)}")
    if hf.get("quantization_config") is not None:
        raise errors.UserError("config.json: quantization_config is not supported; only unquantised weights are")
    return FAMILIES[name].config_from_hf(hf)


def published(name: str) -> config_lib.DecoderConfig:
    """The decoder of a published model by its Hub name, without asking the Hub.

    Raises:
        UserError: no such name.
    """
    if name not in PUBLISHED:
        raise errors.UserError(f"no published shape is called {name!r}; choices: {', '.join(PUBLISHED)}")
    return PUBLISHED[name]


def describe(name_or_folder: str, revision: str | None = None) -> tuple[config_lib.DecoderConfig, pathlib.Path]:
    """The decoder that a Hub name or a folder holds, and the folder with its weights.

    Weights of unsupported models are not fetched.

    Raises:
        UserError: no such model, the Hub cannot be reached, or the model is not supported.
    """
    hf = hf_config.read(hub.resolve(name_or_folder, revision, config_only=True))
    try:
        config = config_from_hf(hf)
    except errors.UserError as error:
        raise errors.UserError(f"{name_or_folder}: {error}") from None
    return config, hub.resolve(name_or_folder, revision)
