"""Build rows and models from settings. No weights are loaded."""

import collections
import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any

from absl import logging
from jax.sharding import Mesh

from knnprompt_jax.cli import shared_settings as shared
from knnprompt_jax.common import parallel
from knnprompt_jax.inference import lm
from knnprompt_jax.inference.lm import memory
from knnprompt_jax.inference.prompts import shot_limits
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import hub, sharding
from knnprompt_jax.tasks import catalogue, splits, table_file
from knnprompt_jax.tasks.task import Example, Task

_PUBLISHED_VOCABULARIES = (50257, 50272)  # GPT-2's and OPT's, in whose tokens the paper counted.


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """A task's train rows and the rows to classify; they are published if M_T of the paper is that of these rows."""

    task: Task
    train: Sequence[Example]
    evaluation: Sequence[Example]
    are_published: bool = False


def read_model(
    name: str | None, settings: shared.PassOptions, context: int = 0, needs_weights: bool = True
) -> lm.LanguageModel:
    """Return the model of that name, whose weights are not loaded yet.

    Args:
        name: by default the package's default.
        context: the maximum number of tokens of a prompt; 0: the model's limit.
        needs_weights: False for a dry run, which needs no weight files and no devices.

    Raises:
        UserError: there is no such model or mesh.
    """
    dtype = settings.dtype or "float32"
    model = lm.LanguageModel.from_pretrained(
        name or hub.DEFAULT,
        dtype,
        deterministic=bool(settings.deterministic),
        step_tokens=settings.batch,
        mesh=functools.partial(make_mesh, settings.mesh, dtype, settings.batch),
        context=context,
        needs_weights=needs_weights,
    )
    if needs_weights:
        sharding.check(model.config, model.mesh)
    return model


def make_mesh(options: shared.MeshOptions, dtype: str, step_tokens: int, config: config_lib.DecoderConfig) -> Mesh:
    """Make a mesh for a model; if `options.model` is 0, with the smallest size of that axis at which the model fits."""
    return parallel.make_mesh(options.data, options.model or memory.model_axis(config, dtype, step_tokens))


def choose_saved_mesh(options: shared.SavedMesh, identity: lm.Identity) -> lm.MeshChoice:
    """Return the mesh of a saved classifier's model, or the function that chooses it if `options.model` is 0.

    Raises:
        UserError: there is no such mesh, or the model is deterministic and `options.model` is 0.
    """
    shared.check_model_axis(options.model, identity.deterministic)
    if options.model:
        return parallel.make_mesh(0, options.model)
    return functools.partial(make_mesh, shared.MeshOptions(model=0), identity.dtype, 0)


def row_options(settings: shared.EvaluationOptions) -> dict[str, Any]:
    """Return the options that chose rows and context, for `records.Run.source`; only grids have `rows`.

    Files are not among them, because the key of a run covers its rows by content.
    """
    names = ("rows", "drop_duplicates", "hub", "context")
    given = {name: getattr(settings, name) for name in names if hasattr(settings, name)}
    split = "" if getattr(settings, "eval_file", "") else settings.split or shared.SPLIT
    return {"split": split, **given}


def load_rows(
    settings: shared.EvaluationOptions, name: str, train_file: str = "", eval_file: str = "", count: int = 0
) -> Rows:
    """Load a task's train rows and the rows to classify, the first `count` of these if it is not 0.

    Defects of the rows are logged, with their places except in the paper's data; `drop_duplicates` removes them.

    Raises:
        UserError: the task or its rows cannot be read (`catalogue.load_rows`).
    """
    task, train = load_train(settings, name, train_file)
    if eval_file:
        evaluation = settings.table(eval_file).labelled(task)
    else:
        evaluation = _load_split(settings, task, name, settings.split or shared.SPLIT)
    published = are_published(name, train_file)
    if found := splits.describe_defects(train, evaluation, not published):
        logging.warning("task %r: %s%s", task.name, "removed: " if settings.drop_duplicates else "", found)
    log_warnings(splits.label_warnings(train))
    if settings.drop_duplicates:
        train = splits.drop_defects(train, evaluation)
    return Rows(task, train, evaluation[: count or None], published)


def are_published(task: str, train_file: str) -> bool:
    """Return whether rows are those of the paper, unless a folder or the Hub has others under the task's name."""
    return task in catalogue.PAPER_TASKS and not train_file


def load_train(settings: shared.RowOptions, name: str, path: str = "") -> tuple[Task, list[Example]]:
    """Load a task and its train rows, from the file at `path` if there is one.

    The task "own" is inferred from the file's columns.

    Raises:
        UserError: the task or its rows cannot be read (`Table.labelled`, `catalogue.load_rows`).
    """
    if name == catalogue.OWN:
        return settings.table(path).infer()
    task = catalogue.get(name)
    return task, settings.table(path).labelled(task) if path else _load_split(settings, task, name, "train")


def _load_split(settings: shared.RowOptions, task: Task, name: str, split: str) -> list[Example]:
    """Load a split of a task from its folder, from the Hub or from the package."""
    hub_source = catalogue.hub_source(name) if settings.hub else None
    return catalogue.load_rows(
        task,
        split,
        data_dir=settings.data_dir or None,
        hub_source=hub_source,
        on_bad=settings.on_bad,
        label_column=settings.label_column or table_file.LABEL,
    )


def demo_shots(requested: int, shots: int, rows: Rows, model: lm.LanguageModel) -> int:
    """Return the number of demonstrations per class, for draws of `shots` rows per class or of `splits.ALL_ROWS`.

    -1 means M_T, reduced to the largest of 0, 1, 2, 4, …, 32 that leaves at least one anchor per class.
    """
    if requested >= 0:
        return requested
    rows_per_class = shots
    if shots == splits.ALL_ROWS:
        rows_per_class = max(collections.Counter(row.label for row in rows.train).values())
    max_shots = max_demo_shots(rows, model)
    smaller = [size for size in (0, *shot_limits.DEMO_SHOTS) if size < rows_per_class]
    return max_shots if max_shots < rows_per_class else max(smaller)


def max_demo_shots(rows: Rows, model: lm.LanguageModel) -> int:
    """Return M_T: the paper's number for its rows, contexts and vocabularies, otherwise what the rows give."""
    if rows.are_published and model.config.vocab_size in _PUBLISHED_VOCABULARIES:
        published = shot_limits.paper_m_t(rows.task.name, model.context)
        if published:
            return published
    queries = rows.evaluation or None
    return shot_limits.shot_limit(rows.task, rows.train, model.tokenize, model.context, queries).m_t


def log_warnings(warnings: Iterable[str]) -> None:
    """Log each of the warnings."""
    for warning in warnings:
        logging.warning(warning)
