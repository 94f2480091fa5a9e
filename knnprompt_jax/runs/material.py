"""What settings name, but for the weights: rows, and models by their description and tokenizer. Mistakes show here first."""

import collections
import dataclasses
import functools
import hashlib
import pathlib
from collections.abc import Collection, Sequence
from typing import Any, TypeVar

import numpy as np
from absl import logging

from knnprompt_jax import errors
from knnprompt_jax.classifier import saving
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import identity, registry, tokenizers
from knnprompt_jax.prompts import layout, statistics
from knnprompt_jax.runs import method_settings
from knnprompt_jax.runs import settings as settings_lib
from knnprompt_jax.tasks import catalogue, defects, sources
from knnprompt_jax.tasks.task import Example, Task

Settings = TypeVar("Settings", settings_lib.BuildSettings, method_settings.JobSettings)
_PUBLISHED_VOCABULARIES = (50257, 50272)  # GPT-2's and OPT's, in whose tokens the paper counted.


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """A task's train rows and rows to classify."""

    task: Task
    train: Sequence[Example]
    evaluation: Sequence[Example]

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of all rows."""
        digest = hashlib.sha256()
        for rows in (self.train, self.evaluation):
            digest.update(repr([(dict(row.fields), row.label) for row in rows]).encode())
        return digest.hexdigest()


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """A model by name: its folder or file, description, tokenizer and fingerprint."""

    name: str
    folder: pathlib.Path
    config: config_lib.DecoderConfig
    tokenizer: Any
    needs_weights: bool = True
    _lengths: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def short_name(self) -> str:
        return pathlib.PurePath(self.name).name

    @functools.cached_property
    def tokenize(self) -> layout.Tokenize:
        return layout.tokenize_with(self.tokenizer)

    @functools.cached_property
    def fingerprint(self) -> str:
        """That of the weights; empty where there are none and none are needed."""
        try:
            return identity.fingerprint(self.folder)
        except errors.UserError:
            if self.needs_weights:
                raise
            return ""

    def identity(self, dtype: str, deterministic: bool) -> tuple[str, str, Any, str, bool]:
        """As `LanguageModel.identity` with weights of this dtype."""
        return self.name, self.fingerprint, self.tokenizer, dtype, deterministic

    def lengths(self, texts: Sequence[str]) -> np.ndarray:
        """Tokens of each text, special ones not counted; each text is counted once."""
        new = [text for text in dict.fromkeys(texts) if text not in self._lengths]
        special = len(self.tokenize([""])[0])
        for text, tokens in zip(new, self.tokenize(new), strict=True):
            self._lengths[text] = len(tokens) - special
        return np.array([self._lengths[text] for text in texts], int)


def with_saved_model(settings: Settings, saved: saving.Saved) -> Settings:
    """The settings with the model, its dtype and `deterministic` of a saved classifier, unless they name others than the defaults."""
    made_by = saved.manifest.provenance
    left = [
        name for name in ("model", "dtype", "deterministic") if getattr(settings, name) == getattr(type(settings), name)
    ]
    return dataclasses.replace(settings, **{name: getattr(made_by, name) for name in left})


def load_model(
    name: str,
    revision: str = "",
    families: Collection[str] = registry.LANGUAGE_MODELS,
    of_prompts: bool = True,
    weights: bool = True,
) -> Model:
    """The model of that name, its weights not loaded; raises UserError where there is none that can be read.

    `of_prompts` says that its tokenizer is to make prompts, as for `tokenizers.load`. Without `weights`, as for a plan,
    config.json and tokenizer are enough.
    """
    config, folder = registry.describe(name, revision or None, families, weights)
    return Model(name, folder, config, tokenizers.load(folder, of_prompts, config.vocab_size), weights)


def load_train(settings: settings_lib.RowOptions, name: str, path: str = "") -> tuple[Task, list[Example]]:
    """A task and its train rows, from the file at `path` if there is one; raises UserError as `sources.load_rows`.

    The task "own" is made of that file's columns.
    """
    if name == settings_lib.OWN and path:
        task = sources.infer(path, settings.encoding, settings.label_column, settings.text_columns)
    elif name == settings_lib.OWN:
        raise errors.UserError(f"task={name!r}: it is made of the columns of train_file: give that too")
    else:
        task = catalogue.get(name)
    rows = sources.load_rows(
        task, "train", path=path or None, restore_dropped=settings.restore_dropped, **_place(settings, name)
    )
    return task, rows


def load_rows(settings: method_settings.SharedSettings, name: str, train_file: str = "", eval_file: str = "") -> Rows:
    """A task's train rows and rows to classify; what is wrong with the data is logged, and removed only on demand.

    Raises UserError as `sources.load_rows`.
    """
    task, train = load_train(settings, name, train_file)
    evaluation = sources.load_rows(task, settings.split, path=eval_file or None, **_place(settings, name))
    if wrong := defects.find(train, evaluation):
        logging.warning("task %r: %s%s", task.name, wrong, "; removed" if settings.drop_duplicates else "")
    return Rows(task, defects.remove(train, evaluation) if settings.drop_duplicates else train, evaluation)


def max_demo_shots(rows: Rows, model: Model) -> int:
    """M_T: the paper's where it has one for this context and vocabulary, otherwise by the same rule, or 2 in long contexts."""
    published = None
    if model.config.vocab_size in _PUBLISHED_VOCABULARIES:
        published = statistics.max_shots_in_context(rows.task.name, model.config.num_positions)
    counted = (rows.task, rows.train, model.tokenize, model.config.num_positions, rows.evaluation or None)
    return published or statistics.compute_m_t(*counted).m_t


def demo_shots(settings: settings_lib.DrawOptions, rows: Rows, model: Model) -> int:
    """Those that are asked for; of -1 M_T, or where that leaves no anchors the next size that does, or a UserError."""
    shots = settings.shots or max(collections.Counter(row.label for row in rows.train).values())
    if settings.demo_shots >= 0:
        return settings.demo_shots
    if shots < 2:
        raise errors.UserError(
            f"shots={shots}: at least 2 are needed, one demonstration and one anchor per class (or demo_shots=0)"
        )
    most = max_demo_shots(rows, model)
    return most if most < shots else max(shot for shot in statistics.DEMO_SHOTS if shot < shots)


def _place(settings: settings_lib.RowOptions, name: str) -> dict[str, Any]:
    return {
        "data_dir": settings.data_dir or None,
        "encoding": settings.encoding,
        "label_column": settings.label_column,
        "hub_source": catalogue.hub_source(name) if settings.hub else None,
    }
