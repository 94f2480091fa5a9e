"""A task as one model reads it: rows, tokenizer, the model's description; no weights yet."""

import dataclasses
import pathlib
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from knnprompt_jax.methods import method, registry
from knnprompt_jax.models import checkpoints, tokenizers
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import registry as models
from knnprompt_jax.paper import cells, draws
from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.prompts import layout
from knnprompt_jax.runs import preparation
from knnprompt_jax.tasks import catalogue


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """A model by name: its folder and description, and its tokenizer's counts of tokens so far."""

    name: str
    folder: pathlib.Path
    config: config_lib.DecoderConfig
    fingerprint: str
    tokenize: layout.Tokenize
    _lengths: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def short_name(self) -> str:
        return pathlib.PurePath(self.name).name

    def lengths(self, texts: Sequence[str]) -> np.ndarray:
        """Tokens of each text, special ones not counted."""
        new = [text for text in dict.fromkeys(texts) if text not in self._lengths]
        special = len(self.tokenize([""])[0])
        for text, tokens in zip(new, self.tokenize(new), strict=True):
            self._lengths[text] = len(tokens) - special
        return np.array([self._lengths[text] for text in texts], int)


@dataclasses.dataclass(frozen=True, eq=False)
class Subject:
    """A task and a model; `most` is M_T, the demonstrations a class that the model's context holds.

    A subject of methods that train their own model has that model, and no M_T.
    """

    rows: draws.Rows
    model: Model
    label_token: str
    most: int = 0

    @property
    def reads_prompts(self) -> bool:
        return self.most > 0

    def problem(self, cell: cells.Cell) -> method.Problem:
        evaluation = draws.evaluation(self.rows, cell.test_share, cell.draw.seed)
        split = draws.split(self.rows, cell.draw)
        own: dict[str, Any] = {"label_token": self.label_token, "logit_cap": self.model.config.logit_cap}
        return method.Problem(self.rows.task, split, evaluation, self.model.tokenize, **own)


def load_rows(settings: settings_lib.GridSettings, name: str) -> draws.Rows:
    """The task's rows, those to classify limited as the settings say."""
    task = catalogue.get(name)
    train, evaluation = preparation.load_rows(settings.job(name), task)
    return draws.Rows(task, train, evaluation[: settings.rows or None])


def load_model(name: str, revision: str = "", families: Collection[str] = models.LANGUAGE_MODELS) -> Model:
    """The model's description, tokenizer and fingerprint."""
    config, folder = models.describe(name, revision or None, families)
    tokenize = layout.tokenize_with(tokenizers.load(folder))
    return Model(name, folder, config, checkpoints.fingerprint(folder, config), tokenize)


def make_subject(settings: settings_lib.GridSettings, rows: draws.Rows, model: Model) -> Subject:
    most = preparation.max_demo_shots(rows.task, rows.train, rows.evaluation, model.tokenize, model.config)
    return Subject(rows, model, settings.label_token, most)


def trained_model(settings: settings_lib.GridSettings, name: str) -> Model:
    """The model that a method trains."""
    options: dict[str, Any] = {**registry.get(name).options, **settings.options.get(name, {})}
    return load_model(options["model"], families=tuple(models.FAMILIES))
