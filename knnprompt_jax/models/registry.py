"""The model families, a file each, called by the `model_type` of their config.json.

A file has `config_from_hf`, from a config.json to the model's configuration; `PUBLISHED`, what the config.json of published sizes
says of their shape, by Hub name; `TABLE`, the names of the weights, and `FLAX_TABLE` where Flax files were published.
"""

import functools
import importlib
import math
import pathlib
from collections.abc import Callable, Collection
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from knnprompt_jax import errors
from knnprompt_jax.models import bert, decoder, hf_config, hub
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models.gguf import config as gguf_config

Model = Any  # A decoder.Decoder or bert.Encoder, as the family of its config says.
# Of each family, the class of `transformers` that loads an export.
ARCHITECTURES = {
    "gpt2": "GPT2LMHeadModel",
    "opt": "OPTForCausalLM",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "gpt_neox": "GPTNeoXForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "phi": "PhiForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "bert": "BertModel",
}
ENCODERS = ("bert",)
LANGUAGE_MODELS = tuple(name for name in ARCHITECTURES if name not in ENCODERS)
FAMILIES = {name: importlib.import_module(f"knnprompt_jax.models.{name}") for name in ARCHITECTURES}
PUBLISHED = {name: hf for family in LANGUAGE_MODELS for name, hf in FAMILIES[family].PUBLISHED.items()}


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


@functools.cache
def num_parameters(config: config_lib.DecoderConfig) -> int:
    """Parameters of the whole model; a tied head counts once."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(abstract(config)))


def abstract(config: config_lib.DecoderConfig, dtype: jnp.dtype = jnp.float32) -> Model:
    """The model without values: shapes and types of its weights."""
    module: Callable[..., Model] = bert.Encoder if config.family in ENCODERS else decoder.Decoder
    return nnx.eval_shape(lambda: module(config, nnx.Rngs(0), dtype))


def published(name: str) -> config_lib.DecoderConfig:
    """The decoder of a published language model by its Hub name, without asking the Hub. Raises UserError: no such name."""
    if name not in PUBLISHED:
        raise errors.UserError(f"no published shape is called {name!r}; choices: {', '.join(PUBLISHED)}")
    return config_from_hf(PUBLISHED[name])


def describe(
    name_or_folder: str,
    revision: str | None = None,
    families: Collection[str] = LANGUAGE_MODELS,
    weights: bool = True,
) -> tuple[config_lib.DecoderConfig, pathlib.Path]:
    """The model of a name, folder or file, which must be of one of these families, and where its weights lie.

    Weights of unsupported models are not fetched, nor any without `weights`.

    Raises:
        UserError: as `hub.resolve`, or the model is not supported.
    """
    path = hub.resolve(name_or_folder, revision, config_only=True)
    try:
        hf = gguf_config.config_json(path) if path.suffix == ".gguf" else hf_config.read(path)
        config = config_from_hf(hf, families)
    except errors.UserError as error:
        named = str(error).startswith(f"{path}: ")
        raise errors.UserError(str(error) if named else f"{name_or_folder}: {error}") from None
    return config, hub.resolve(name_or_folder, revision, weights=weights)
