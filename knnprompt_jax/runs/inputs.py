"""Read what settings name, except the weights: rows, and models by configuration and tokenizer. Most mistakes show here."""

import collections
import dataclasses
import functools
import pathlib
from collections.abc import Collection, Sequence
from typing import Any, TypeVar

import numpy as np
from absl import logging
from jax.sharding import Mesh

from knnprompt_jax import errors, lm, parallel, shipped
from knnprompt_jax.classifier import saving
from knnprompt_jax.lm import memory
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import hub, registry, sharding, tokenizers
from knnprompt_jax.models.weights import tensor_files
from knnprompt_jax.prompts import layout, statistics
from knnprompt_jax.settings import models as models_settings
from knnprompt_jax.settings import shared, stores
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.tasks import catalogue, defects, sources
from knnprompt_jax.tasks.task import ALLOW, Example, Task

Settings = TypeVar("Settings", bound=shared.ReadingOptions)
_PUBLISHED_VOCABULARIES = (50257, 50272)  # GPT-2's and OPT's, in whose tokens the paper counted.


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """A task's train rows and the rows to classify."""

    task: Task
    train: Sequence[Example]
    evaluation: Sequence[Example]


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
    needs_weights: bool = True
    _lengths: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def short_name(self) -> str:
        """The last part of the name."""
        return pathlib.PurePath(self.name).name

    @functools.cached_property
    def tokenize(self) -> layout.Tokenize:
        return layout.tokenize_with(self.tokenizer)

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the model's files; "" where there are no weights and none are needed."""
        return fingerprint(self.path, self.needs_weights)

    def identity(self, dtype: str, deterministic: bool) -> tuple[str, str, Any, str, bool]:
        """Return the `identity` that the `LanguageModel` would have."""
        return self.name, self.fingerprint, self.tokenizer, dtype, deterministic

    def lengths(self, texts: Sequence[str]) -> np.ndarray:
        """Count the tokens of each text [N], special tokens excluded. Each distinct text is tokenized once."""
        new = [text for text in dict.fromkeys(texts) if text not in self._lengths]
        special = len(self.tokenize([""])[0])
        for text, tokens in zip(new, self.tokenize(new), strict=True):
            self._lengths[text] = len(tokens) - special
        return np.array([self._lengths[text] for text in texts], int)


@functools.cache  # The Hub is asked once per process.
def find_model(name: str, weights: bool) -> pathlib.Path | errors.UserError:
    """Return the place of a model's files, or why there is none."""
    try:
        return hub.resolve(name, weights=weights)
    except errors.UserError as error:
        return error


def fingerprint(place: pathlib.Path | errors.UserError, needs_weights: bool) -> str:
    """Return the SHA-256 of a model's files; "" where there are no weights and none are needed."""
    try:
        if isinstance(place, errors.UserError):
            raise place
        return tensor_files.fingerprint(place)
    except errors.UserError:
        if needs_weights:
            raise
        return ""


def with_defaults(settings: Settings, saved: saving.Saved | None = None) -> Settings:
    """Fill in the model, dtype and deterministic mode that are not given: a saved classifier's, or the defaults.

    Raises:
      UserError: a given dtype or deterministic mode is not the saved classifier's. (Its manifest checks the model.)
    """
    defaults: dict[str, Any] = {"model": shipped.DEFAULT, "dtype": "float32", "deterministic": False}
    if saved:
        made = saved.manifest.provenance
        defaults = {name: getattr(made, name) for name in defaults}
        for name in ("dtype", "deterministic"):
            given = getattr(settings, name)
            if given not in (None, defaults[name]):
                raise errors.UserError(
                    f"--{name}={given}: {saved.folder} was made with {name}={defaults[name]}; leave it out or fit again"
                )
    fields = {field.name for field in dataclasses.fields(settings)}
    values = {name: value for name, value in defaults.items() if name in fields and getattr(settings, name) is None}
    return dataclasses.replace(settings, **values)


def join_processes(distributed: models_settings.DistributedOptions) -> None:
    """Join the processes of the run, before anything else uses a device; raise UserError if they cannot be joined."""
    parallel.start(**dataclasses.asdict(distributed))


def prepare(
    settings: Any, saved: saving.Saved | None = None, datastore: stores.StoreOptions | None = None
) -> tuple[Any, Mesh, Model]:
    """Return the settings with defaults filled in, the mesh, and a model that it can split.

    Args:
      datastore: the store's options; by default those of the settings.

    Raises:
      UserError: there is no such model or mesh, or several processes would search host memory.
    """
    settings = with_defaults(settings, saved)
    store_lib.check_processes(datastore or settings.datastore)
    mesh = make_mesh(settings, [settings.model])
    model = load_model(settings.model, settings.revision, context=getattr(settings, "context", 0))
    sharding.check(model.config, mesh)
    return settings, mesh, model


def make_mesh(settings: models_settings.ModelOptions, models: Sequence[str]) -> Mesh:
    """Make the mesh of the settings. Where they leave its axis `model` open, it is the smallest that holds all models."""
    size = settings.mesh.model
    if not size:
        configs = [registry.describe(name, settings.revision or None, weights=False)[0] for name in models]
        size = memory.model_axis(configs, settings.dtype or "float32", settings.batch)
    return parallel.make_mesh(settings.mesh.data, size)


def load_model(
    name: str,
    revision: str = "",
    families: Collection[str] = registry.LANGUAGE_MODELS,
    of_prompts: bool = True,
    weights: bool = True,
    context: int = 0,
) -> Model:
    """Describe the model of that name without loading its weights.

    Args:
      of_prompts: whether the tokenizer must be able to build prompts.
      weights: weight files are needed; without them config.json and the tokenizer are enough.
      context: the most tokens of a prompt; 0: as many as the model reads.

    Raises:
      UserError: there is no such model, it cannot be read, or it reads fewer than `context` tokens.
    """
    config, path = registry.describe(name, revision or None, families, weights)
    if context > config.num_positions:
        raise errors.UserError(f"--context={context}: {name} reads at most {config.num_positions} tokens")
    tokenizer = tokenizers.load(path, of_prompts, config.vocab_size)
    return Model(name, path, config, tokenizer, context or config.num_positions, weights)


def load_weights(settings: shared.ReadingOptions, model: Model, mesh: Mesh) -> lm.LanguageModel:
    """Load the weights of a model onto the mesh."""
    files = (model.path, model.config, model.tokenizer, model.name, model.fingerprint)
    loaded = lm.LanguageModel.from_files(
        *files, settings.dtype, settings.batch or None, mesh, bool(settings.deterministic)
    )
    loaded.context = model.context
    return loaded


def load_train(settings: shared.RowOptions, name: str, path: str = "") -> tuple[Task, list[Example]]:
    """Load a task and its train rows, from the file at `path` if there is one. The task "own" is made of its columns.

    Raises:
      UserError: the task or its rows cannot be read (`sources.load_rows`).
    """
    if settings.text_columns and name != shared.OWN:
        raise errors.UserError(
            f"--text_columns: has no effect with --task={name}, which names its fields; leave it out"
        )
    if settings.restore_dropped and path:
        raise errors.UserError("--restore_dropped: has no effect with --train_file, only with --data_dir; leave it out")
    if name == shared.OWN and not path:
        raise errors.UserError(f"--task={name}: the task is made of the columns of a table; give --train_file")
    if name == shared.OWN and not (settings.data_dir or settings.hub):
        empty = settings.empty or ALLOW
        return sources.load_table(path, settings.text_columns, empty, on_bad=settings.on_bad, **settings.source())
    task = catalogue.get(name)
    task = dataclasses.replace(task, empty=settings.empty or task.empty)
    place = _place(settings, name, path)
    return task, sources.load_rows(task, "train", restore_dropped=settings.restore_dropped, **place)


def load_rows(
    settings: shared.SharedSettings, name: str, train_file: str = "", eval_file: str = "", count: int = 0
) -> Rows:
    """Load a task's train rows and the rows to classify, the first `count` of these if it is not 0.

    Defects of the rows are logged; `drop_duplicates` removes them.

    Raises:
      UserError: the task or its rows cannot be read (`sources.load_rows`).
    """
    task, train = load_train(settings, name, train_file)
    evaluation = sources.load_rows(task, settings.split or shared.SPLIT, **_place(settings, name, eval_file))
    if found := defects.describe(train, evaluation):
        logging.warning("task %r: %s%s", task.name, found, "; removed" if settings.drop_duplicates else "")
    train = defects.drop(train, evaluation) if settings.drop_duplicates else train
    return Rows(task, train, evaluation[: count or None])


def max_demo_shots(rows: Rows, model: Model) -> int:
    """Return M_T: the paper's for its contexts and vocabularies, otherwise by the same rule, or 2 in long contexts."""
    published = None
    if model.config.vocab_size in _PUBLISHED_VOCABULARIES:
        published = statistics.max_shots_in_context(rows.task.name, model.context)
    counted = (rows.task, rows.train, model.tokenize, model.context, rows.evaluation or None)
    return published or statistics.compute_m_t(*counted).m_t


def demo_shots(asked: int, shots: int | None, rows: Rows, model: Model) -> int:
    """Return the number of demonstrations per class; -1 asks for M_T, reduced until at least one anchor per class remains.

    Raises:
      UserError: fewer than 2 shots leave no room for both a demonstration and an anchor.
    """
    if asked >= 0:
        return asked
    per_class = shots or max(collections.Counter(row.label for row in rows.train).values())
    if per_class < 2:
        place = f"--shots={shots}" if shots else "1 row per class"
        raise errors.UserError(
            f"{place}: at least 2 are needed, one demonstration and one anchor per class (or --demo_shots=0)"
        )
    most = max_demo_shots(rows, model)
    return most if most < per_class else max(shot for shot in statistics.DEMO_SHOTS if shot < per_class)


def _place(settings: shared.RowOptions, name: str, path: str) -> dict[str, Any]:
    """Return the arguments of `sources.load_rows` that say where the rows of a task are, and how they are read."""
    return {
        "data_dir": settings.data_dir or None,
        "path": path or None,
        "hub_source": catalogue.hub_source(name) if settings.hub else None,
        "on_bad": settings.on_bad,
        **settings.source(),
    }
