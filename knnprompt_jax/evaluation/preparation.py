"""From settings to prompts, without any weights: so that mistakes show before the model loads."""

import dataclasses
import pathlib
from collections.abc import Sequence

from absl import logging

from knnprompt_jax import demo, errors, lm
from knnprompt_jax.evaluation import settings as settings_lib
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import registry
from knnprompt_jax.prompts import layout, packing, statistics
from knnprompt_jax.tasks import catalogue, defects, sources, splits
from knnprompt_jax.tasks import task as task_lib


@dataclasses.dataclass(frozen=True)
class Run:
    """One seed: its split, and the prompts of its anchors followed by those of the evaluation rows."""

    seed: int
    split: splits.FewShotSplit
    prompts: layout.Prompts


@dataclasses.dataclass(frozen=True)
class Prepared:
    """All that a job needs but the weights."""

    settings: settings_lib.RunSettings
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


def prepare(settings: settings_lib.RunSettings) -> Prepared:
    """Loads rows and tokenizer, draws the splits and lays out the prompts of every seed.

    Raises:
        UserError: on anything in the settings, the rows or the model folder that cannot work.
    """
    task = catalogue.get(settings.task)
    train, evaluation = load_rows(settings, task)
    model_config, folder = registry.describe(settings.model or str(demo.model_folder()), settings.revision or None)
    tokenizer = lm.load_tokenizer(folder)
    tokenize = layout.tokenize_with(tokenizer)
    demo_shots = settings.demo_shots
    if demo_shots < 0:
        demo_shots = default_demo_shots(task, train, evaluation, tokenize, model_config, settings.shots)
    runs = []
    for seed in settings.seeds:
        split = splits.draw(train, task, shots=settings.shots, demo_shots=demo_shots, seed=seed)
        queries = [*split.anchors, *evaluation]
        prompts = layout.lay_out(
            task, split.demonstrations, queries, tokenize, model_config.num_positions, settings.truncation
        )
        runs.append(Run(seed, split, prompts))
    _warn(runs[0], model_config.num_positions)
    label_ids = layout.label_ids(task, tokenize, settings.label_token)
    return Prepared(settings, task, label_ids, train, evaluation, runs, settings.model or "demo", folder, model_config)


def _warn(run: Run, context: int) -> None:
    for warning in run.split.warnings:
        logging.warning(warning)
    if run.prompts.num_oversized:
        logging.warning(
            "%d queries alone are longer than the context of %d tokens: their beginning is cut off, as published; "
            "truncation='error' refuses them",
            run.prompts.num_oversized,
            context,
        )


def load_rows(
    settings: settings_lib.RunSettings, task: task_lib.Task
) -> tuple[list[task_lib.Example], list[task_lib.Example]]:
    """Train and evaluation rows; what is wrong with the data is logged, and removed only on demand."""
    place = {
        "data_dir": settings.data_dir or None,
        "hub_source": catalogue.hub_source(task.name) if settings.hub else None,
    }
    train = sources.load_rows(
        task, "train", csv_path=settings.train_csv or None, restore_dropped=settings.restore_dropped, **place
    )
    evaluation = sources.load_rows(task, settings.split, csv_path=settings.eval_csv or None, **place)
    if found := defects.find(train, evaluation):
        logging.warning("task %r: %s%s", task.name, found, "; removed" if settings.drop_duplicates else "")
    return defects.remove(train, evaluation) if settings.drop_duplicates else train, evaluation


def default_demo_shots(
    task: task_lib.Task,
    train: Sequence[task_lib.Example],
    evaluation: Sequence[task_lib.Example],
    tokenize: layout.Tokenize,
    config: config_lib.DecoderConfig,
    shots: int,
) -> int:
    """M_T: the paper's where it has one for this context and vocabulary, otherwise by the same rule; always fewer than the shots."""
    published = (
        statistics.max_shots_in_context(task.name, config.num_positions)
        if config.vocab_size in (50257, 50272)
        else None
    )
    most = published or statistics.compute_max_shots(task, train, tokenize, config.num_positions, evaluation).m_t
    if shots < 2:
        raise errors.UserError(
            f"shots={shots}: at least 2 are needed, one demonstration and one anchor a class (or demo_shots=0)"
        )
    return most if most < shots else max(shot for shot in statistics.DEMO_SHOTS if shot < shots)


def common_shapes(prepared: Prepared, step_tokens: int, shards: int = 1) -> dict[bool, packing.PackShape]:
    """One packing for all prompts with a shared prefix and one for those without, over all seeds: one compilation each."""
    groups = [group for run in prepared.runs for group in run.prompts.groups]
    kinds = {shared: [group for group in groups if bool(len(group.prefix_P)) == shared] for shared in (True, False)}
    return {shared: packing.choose_shape(members, step_tokens, shards) for shared, members in kinds.items() if members}
