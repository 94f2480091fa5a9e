"""Fit a classifier to a table or to a task's train rows, and write it to a file."""

import collections
import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

from absl import logging

from knnprompt_jax.classifier import classifier_file, fit_classifier
from knnprompt_jax.classifier.arguments import AUTO, AutoOptions
from knnprompt_jax.classifier.fitted import Content
from knnprompt_jax.cli import command_settings as commands
from knnprompt_jax.commands import label_table, unlabelled
from knnprompt_jax.common import errors, parallel, progress
from knnprompt_jax.inference import states
from knnprompt_jax.study import job_inputs
from knnprompt_jax.tasks import catalogue, splits
from knnprompt_jax.tasks.task import Example, Task

_MEMORY = 256 * 2**20  # Bytes of states kept during a fit without a cache of states.


@dataclasses.dataclass(frozen=True)
class Result:
    """A classifier in its file, and what its model read.

    Attributes:
        num_prompts: the number of prompts that the fit needed.
        num_read: the number of these that the model read. The cache of states had the others.
    """

    content: Content
    num_prompts: int
    num_read: int


def run(settings: commands.FitSettings) -> Result:
    """Fit a classifier and write it. An interrupted run is resumed from the cache of states.

    An anchor's id is its row in the train file, from 0.

    Raises:
        UserError: the rows, the model or the options cannot work, or the file exists; the file stays as it is.
    """
    parallel.start(**settings.distributed.to_dict())
    path = pathlib.Path(settings.classifier)
    parallel.call_in_main(lambda: classifier_file.check_replaceable(path, settings.overwrite))
    options = AutoOptions(
        experts=settings.experts,
        encoder=settings.encoder,
        label_token=settings.label_token,
        random_state=settings.seed,
        store_options=settings.datastore,
        class_prior=settings.prior,
        demo_shots=settings.demo_shots or AUTO,
    )
    task, train = _load_rows(settings)
    texts = unlabelled.read_all(settings.table(settings.unlabelled_file), task) if settings.unlabelled_file else []
    table = settings.table(settings.train_file)
    model = job_inputs.read_model(settings.model, settings)
    rows = fit_classifier.first_rows(train, settings.shots, settings.seed) if settings.shots else train
    progress.note(f"reading {_count(len(rows), 'row') if rows else 'the descriptions'} with {model.name}")
    fitted = fit_classifier.fit(
        model,
        task,
        rows,
        options,
        labels=task.labels,
        table=label_table.read(table) if settings.train_file else (),
        label_column=table.label_column,
        cache=states.open_disk_cache(settings.cache_gb) or states.MemoryCache(_MEMORY),
        unlabelled=texts,
    )
    classifier_file.save(fitted, path)
    return Result(fitted.content, model.statistics.requested_prompts, model.statistics.prompts)


def _load_rows(settings: commands.FitSettings) -> tuple[Task, Sequence[Example]]:
    """Return the task and the train rows, on request without duplicates; log defects of the rows.

    A task with descriptions needs no rows.
    """
    name = settings.task or catalogue.OWN
    has_place = settings.train_file or settings.data_dir or settings.hub
    if not has_place and name != catalogue.OWN and catalogue.get(name).descriptions:
        settings.refuse(("shots", "drop_duplicates", "label_column"), "without rows")
        return catalogue.get(name), []
    task, train = job_inputs.load_train(settings, name, settings.train_file)
    if name == catalogue.OWN:
        fields = errors.join_names(task.fields)
        left_out = errors.join_names(dict.fromkeys(column for row in train for column in row.extra))
        progress.note(f"columns in the prompt: {fields}; left out: {left_out}; to change them: --text_columns=")
    rows = splits.drop_defects(train, ()) if settings.drop_duplicates else train
    if len(rows) < len(train):
        logging.warning("--drop_duplicates: %d of %d train rows are left out", len(train) - len(rows), len(train))
    elif found := splits.describe_defects(train):
        logging.warning("%s (see --drop_duplicates)", found)
    job_inputs.log_warnings(splits.label_warnings(rows))
    return task, rows


def summarize(result: Result) -> str:
    """Return what the binary prints: the rows, the prompts, and the experts with their weights."""
    content = result.content
    counts: Mapping[str, int] = collections.Counter(row.label for row in content.rows)
    sizes = [counts[label] for label in content.task.labels]
    per_class = " to ".join(f"{count:,}" for count in sorted({min(sizes), max(sizes)})) + " per class"
    views = [
        f"after {_count(len(view.rows), 'demonstration')}" if view.rows else "without demonstrations"
        for view in content.views
    ]
    lines = [
        f"{_count(len(content.rows), 'row')} of {_count(content.task.num_classes, 'class', 'es')} ({per_class}), "
        f"each read by {content.model.name} {' and '.join(views)}",
        f"prompts read: {result.num_read:,}; found in the cache: {result.num_prompts - result.num_read:,}",
        f"\n{content.choice}",
    ]
    if content.num_unlabelled:
        shares = zip(content.task.labels, content.estimated_prior, strict=True)
        listed = ",".join(f"{label}={share:.3g}" for label, share in shares)
        lines.append(f"shares of classes among {_count(content.num_unlabelled, 'text')} without labels: {listed}")
    chosen = label_table.count_chosen(content)
    if chosen and content.choice and content.choice.estimate:
        lines.append(f"look chose {chosen:,} of the rows; as it prefers difficult ones, this forecast is pessimistic")
    return "\n".join(lines)


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number:,} {noun}{plural if number > 1 else ''}"
