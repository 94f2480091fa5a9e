"""From settings to prompts, without any weights: so that mistakes show before the model loads."""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from absl import logging

from knnprompt_jax import errors
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import registry, tokenizers
from knnprompt_jax.prompts import layout, packing, statistics
from knnprompt_jax.runs import settings as settings_lib
from knnprompt_jax.tasks import catalogue, defects, sources, splits
from knnprompt_jax.tasks import task as task_lib

SettingsT = TypeVar("SettingsT", bound=settings_lib.JobSettings)
SettingsT_co = TypeVar("SettingsT_co", bound=settings_lib.JobSettings, covariant=True)


@dataclasses.dataclass(frozen=True)
class Material:
    """What settings name, but the weights: rows, the split of every seed, the tokenizer, the model's description."""

    task: task_lib.Task
    train: list[task_lib.Example]
    evaluation: list[task_lib.Example]
    splits: list[splits.FewShotSplit]
    tokenize: layout.Tokenize
    model: str
    folder: pathlib.Path
    model_config: config_lib.DecoderConfig


@dataclasses.dataclass(frozen=True)
class Run:
    """One seed: its split, and some examples with their prompts, usually its anchors followed by the evaluation rows."""

    seed: int
    split: splits.FewShotSplit
    examples: Sequence[task_lib.Example]
    prompts: layout.Prompts


@dataclasses.dataclass(frozen=True)
class Prepared(Generic[SettingsT_co]):
    """All that a job needs but the weights."""

    settings: SettingsT_co
    task: task_lib.Task
    label_ids: list[int]
    train: list[task_lib.Example]
    evaluation: list[task_lib.Example]
    runs: list[Run]
    model: str
    folder: pathlib.Path
    model_config: config_lib.DecoderConfig

    @property
    def demo_shots(self) -> int:
        return self.runs[0].split.demo_shots


# The examples of a seed whose prompts are laid out.
Asked = Callable[[Material, splits.FewShotSplit], Sequence[task_lib.Example]]


def anchors_and_evaluation(given: Material, split: splits.FewShotSplit) -> Sequence[task_lib.Example]:
    return [*split.anchors, *given.evaluation]


def gather(settings: settings_lib.JobSettings) -> Material:
    """Loads rows and tokenizer and draws the split of every seed.

    Raises:
        UserError: on anything in the settings, the rows or the model folder that cannot work.
    """
    task = catalogue.get(settings.task)
    train, evaluation = load_rows(settings, task)
    model_config, folder = registry.describe(settings.model, settings.revision or None)
    tokenize = layout.tokenize_with(tokenizers.load(folder))
    demo_shots = settings.demo_shots
    if demo_shots < 0:
        demo_shots = default_demo_shots(task, train, evaluation, tokenize, model_config, settings.shots)
    drawn = [
        splits.draw(train, task, shots=settings.shots, demo_shots=demo_shots, seed=seed) for seed in settings.seeds
    ]
    return Material(task, train, evaluation, drawn, tokenize, settings.model, folder, model_config)


def prepare(settings: SettingsT, asked: Asked = anchors_and_evaluation) -> Prepared[SettingsT]:
    """Gathers the material and lays out the prompts of every seed.

    Raises:
        UserError: on anything in the settings, the rows or the model folder that cannot work.
    """
    given = gather(settings)
    task, evaluation, context = given.task, given.evaluation, given.model_config.num_positions
    runs = []
    for split in given.splits:
        examples = asked(given, split)
        prompts = layout.lay_out(task, split.demonstrations, examples, given.tokenize, context, settings.truncation)
        runs.append(Run(split.seed, split, examples, prompts))
    warn(runs[0].split, runs[0].prompts, context)
    label_ids = layout.label_ids(task, given.tokenize, settings.label_token)
    return Prepared(
        settings, task, label_ids, given.train, evaluation, runs, given.model, given.folder, given.model_config
    )


def warn(split: splits.FewShotSplit, prompts: layout.Prompts, context: int) -> None:
    """Logs which classes have too few rows, and how many queries do not fit even alone."""
    for warning in split.warnings:
        logging.warning(warning)
    if prompts.num_oversized:
        logging.warning(
            "%d queries alone are longer than the context of %d tokens: their beginning is cut off, as published; "
            "truncation='error' refuses them",
            prompts.num_oversized,
            context,
        )


def load_rows(
    settings: settings_lib.JobSettings, task: task_lib.Task
) -> tuple[list[task_lib.Example], list[task_lib.Example]]:
    """Train and evaluation rows; what is wrong with the data is logged, and removed only on demand."""
    place: dict[str, Any] = {
        "data_dir": settings.data_dir or None,
        "encoding": settings.encoding,
        "hub_source": catalogue.hub_source(settings.task) if settings.hub else None,
    }
    train = sources.load_rows(
        task, "train", path=settings.train_file or None, restore_dropped=settings.restore_dropped, **place
    )
    evaluation = sources.load_rows(task, settings.split, path=settings.eval_file or None, **place)
    if found := defects.find(train, evaluation):
        logging.warning("task %r: %s%s", task.name, found, "; removed" if settings.drop_duplicates else "")
    return defects.remove(train, evaluation) if settings.drop_duplicates else train, evaluation


def max_demo_shots(
    task: task_lib.Task,
    train: Sequence[task_lib.Example],
    evaluation: Sequence[task_lib.Example],
    tokenize: layout.Tokenize,
    config: config_lib.DecoderConfig,
) -> int:
    """M_T: the paper's where it has one for this context and vocabulary, otherwise by the same rule, or 2 in long contexts."""
    published = (
        statistics.max_shots_in_context(task.name, config.num_positions)
        if config.vocab_size in (50257, 50272)
        else None
    )
    return published or statistics.compute_m_t(task, train, tokenize, config.num_positions, evaluation).m_t


def default_demo_shots(
    task: task_lib.Task,
    train: Sequence[task_lib.Example],
    evaluation: Sequence[task_lib.Example],
    tokenize: layout.Tokenize,
    config: config_lib.DecoderConfig,
    shots: int,
) -> int:
    """M_T, or where that leaves no anchors the next size that does."""
    if shots < 2:
        raise errors.UserError(
            f"shots={shots}: at least 2 are needed, one demonstration and one anchor a class (or demo_shots=0)"
        )
    most = max_demo_shots(task, train, evaluation, tokenize, config)
    return most if most < shots else max(shot for shot in statistics.DEMO_SHOTS if shot < shots)


def common_shapes(prepared: Prepared, step_tokens: int, shards: int = 1) -> dict[bool, packing.PackShape]:
    """One packing for all prompts with a shared prefix and one for those without, over all seeds: one compilation each."""
    groups = [group for run in prepared.runs for group in run.prompts.groups]
    kinds = {shared: [group for group in groups if bool(len(group.prefix_P)) == shared] for shared in (True, False)}
    return {shared: packing.choose_shape(members, step_tokens, shards) for shared, members in kinds.items() if members}
