"""A language model before its weights are loaded: how it will run, its configuration, its tokenizer and its fingerprint."""

import dataclasses
import functools
import pathlib
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from jax.sharding import Mesh

from knnprompt_jax import errors, lm, parallel
from knnprompt_jax.lm import memory
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import hub, registry, sharding, tokenizers
from knnprompt_jax.models.weights import tensor_files
from knnprompt_jax.prompts import layout
from knnprompt_jax.settings import models as models_settings


@dataclasses.dataclass(frozen=True)
class ExecutionOptions:
    """The dtype of a model, its deterministic mode, the packed tokens per step (0: the device's default) and the mesh."""

    dtype: str = "float32"
    deterministic: bool = False
    batch: int = 0
    mesh: models_settings.MeshOptions = models_settings.MeshOptions()

    def __post_init__(self) -> None:
        if self.deterministic and not self.mesh.model:
            raise errors.UserError(
                "--mesh.model=0: with --deterministic, give the number, because it changes the last digits"
            )

    @property
    def content(self) -> dict[str, Any]:
        """The values that can change a result, in JSON's types. In deterministic mode, batch and `mesh.data` change none."""
        content, mesh = {"dtype": self.dtype, "deterministic": self.deterministic}, self.mesh.to_dict()
        return content | (
            {"mesh": {"model": mesh["model"]}} if self.deterministic else {"batch": self.batch, "mesh": mesh}
        )

    def make_mesh(self, configs: Sequence[config_lib.DecoderConfig]) -> Mesh:
        """Make the mesh. If `mesh.model` is 0, use the smallest size at which every model fits.

        Raises:
          UserError: there are too few devices, or a model cannot be split over the mesh.
        """
        mesh = parallel.make_mesh(self.mesh.data, self.mesh.model or memory.model_axis(configs, self.dtype, self.batch))
        for config in configs:
            sharding.check(config, mesh)
        return mesh


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """A model without its weights.

    Attributes:
      context: the most tokens of a prompt.
      needs_weights: false for a dry run, which works without weight files.
    """

    name: str
    path: pathlib.Path
    config: config_lib.DecoderConfig
    tokenizer: Any
    context: int
    execution: ExecutionOptions = ExecutionOptions()
    needs_weights: bool = True
    _lengths: dict[str, int] = dataclasses.field(default_factory=dict, init=False, repr=False)

    @property
    def short_name(self) -> str:
        """The name without owner, folders and revision."""
        return hub.base_name(self.name)

    @functools.cached_property
    def tokenize(self) -> layout.Tokenize:
        return layout.tokenize_with(self.tokenizer)

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the model's files; "" if there are no weights and none are needed."""
        return fingerprint(self.path, self.needs_weights)

    @property
    def identity(self) -> lm.Identity:
        """The `identity` of the loaded model."""
        return lm.Identity(
            self.name, self.fingerprint, self.execution.dtype, self.execution.deterministic, self.context
        )

    def lengths(self, texts: Sequence[str]) -> np.ndarray:
        """Count the tokens of each text [N], special tokens excluded. Each distinct text is tokenized once."""
        new = [text for text in dict.fromkeys(texts) if text not in self._lengths]
        self._lengths.update(zip(new, layout.count_tokens(self.tokenize, new).tolist(), strict=True))
        return np.array([self._lengths[text] for text in texts], int)

    def load(self, mesh: Mesh) -> lm.LanguageModel:
        """Load the weights onto the mesh."""
        files, batch = (self.path, self.config, self.tokenizer), self.execution.batch or None
        return lm.LanguageModel.from_files(*files, self.identity, batch, mesh)


@functools.cache  # The Hub is asked once per process.
def find(name: str, needs_weights: bool) -> pathlib.Path | None:
    """Return the path of a model's files; None if they are missing and no weights are needed."""
    try:
        return hub.resolve(name, weights=needs_weights)
    except errors.UserError:
        if needs_weights:
            raise
        return None


def fingerprint(path: pathlib.Path | None, needs_weights: bool) -> str:
    """Return the SHA-256 of a model's files; "" if there are no weights and none are needed."""
    try:
        return tensor_files.fingerprint(path) if path else ""
    except errors.UserError:
        if needs_weights:
            raise
        return ""


def describe(
    name: str,
    execution: ExecutionOptions = ExecutionOptions(),
    context: int = 0,
    families: Collection[str] = registry.LANGUAGE_MODELS,
    of_prompts: bool = True,
    weights: bool = True,
) -> Model:
    """Describe the model of that name without loading its weights.

    Args:
      context: the most tokens of a prompt; 0: the model's limit.
      of_prompts: whether the tokenizer must be able to build prompts.
      weights: weight files are needed; without them config.json and the tokenizer are enough.

    Raises:
      UserError: there is no such model, it cannot be read, or it reads fewer than `context` tokens.
    """
    config, path = registry.describe(name, families, weights)
    context = lm.checked_context(context, name, config)
    tokenizer = tokenizers.load(path, of_prompts, config.vocab_size)
    return Model(name, path, config, tokenizer, context, execution, weights)
