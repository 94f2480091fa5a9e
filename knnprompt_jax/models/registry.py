"""The model families by the `model_type` of their config.json, and the shapes of published models."""

import functools
import json
import math
import pathlib
from collections.abc import Callable, Collection
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import decoder, hub
from knnprompt_jax.models.families import bert, gpt2, gpt_neox, llama, opt

Model = Any  # A decoder.Decoder or bert.Encoder, by the family of its config.
_MODULES = (gpt2, opt, llama, gpt_neox, bert)
FAMILIES = {family.name: family for module in _MODULES for family in module.FAMILIES}
ENCODERS = tuple(family.name for family in bert.FAMILIES)
LANGUAGE_MODELS = tuple(name for name in FAMILIES if name not in ENCODERS)
# The keys of config.json that describe the shape of published models, by Hub name. `PUBLISHED` lacks the encoders.
PUBLISHED_CONFIGS = json.loads(
    (pathlib.Path(__file__).parent / "families" / "published.json").read_text(encoding="utf-8")
)
PUBLISHED = {name: hf for name, hf in PUBLISHED_CONFIGS.items() if hf["model_type"] not in ENCODERS}


def config_from_hf(
    hf: config_lib.Json, families: Collection[str] = LANGUAGE_MODELS, path: str = "config.json"
) -> config_lib.DecoderConfig:
    """Return the configuration that a config.json at `path` describes, which must be of one of these families.

    Raises:
        UserError: the architecture or one of its switches is not supported, or a key is unknown.
    """
    fields = config_lib.Fields(hf, path)
    name = fields.choice("model_type", None, families)
    fields.require("quantization_config", None)
    if name in LANGUAGE_MODELS:
        fields.require("is_causal", True)
    config = FAMILIES[name].config_from_hf(fields)
    fields.refuse_unread()
    return config


@functools.cache
def num_parameters(config: config_lib.DecoderConfig) -> int:
    """Return the number of parameters of the whole model; a tied head counts once."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(abstract(config)))


def abstract(config: config_lib.DecoderConfig, dtype: jnp.dtype = jnp.float32) -> Model:
    """Return the model without values: shapes and dtypes of its weights."""
    module: Callable[..., Model] = bert.Encoder if config.family in ENCODERS else decoder.Decoder
    return nnx.eval_shape(lambda: module(config, nnx.Rngs(0), dtype))


def describe(
    name_or_folder: str, families: Collection[str] = LANGUAGE_MODELS, weights: bool = True
) -> tuple[config_lib.DecoderConfig, pathlib.Path]:
    """Return the configuration of the model of a name, folder or GGUF file, and its folder.

    Weights are downloaded only with `weights`, and only for supported models.

    Raises:
        UserError: as `hub.resolve`, or the model is of none of these families.
    """
    folder = hub.resolve(name_or_folder, config_only=True)
    path = folder / "config.json"
    config = config_from_hf(config_lib.read(path), families, str(path))
    return config, hub.resolve(name_or_folder, weights=weights)
