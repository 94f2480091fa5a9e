"""Fit a classifier to a table or to a task's train rows, and write it to a file."""

import collections
import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from knnprompt_jax import errors, files, parallel, progress, states
from knnprompt_jax.classifier import classifier_file, fit_classifier
from knnprompt_jax.classifier.classifier_options import AUTO, AutoOptions
from knnprompt_jax.classifier.fitted import Content
from knnprompt_jax.runs import corrections
from knnprompt_jax.settings import commands
from knnprompt_jax.study import job_inputs as inputs
from knnprompt_jax.tasks import catalogue, defects
from knnprompt_jax.tasks.task import Example, Task

_MEMORY = 256 * 2**20  # Bytes of states kept during a fit without a cache of states.


@dataclasses.dataclass(frozen=True)
class Result:
    """A classifier in its file, what its model read, and remarks for the user.

    Attributes:
        num_prompts: the number of prompts that the fit needed; 0 if the file held this classifier already.
        num_read: the number of these that the model read. The cache of states had the others.
    """

    content: Content
    num_prompts: int
    num_read: int
    notes: tuple[str, ...] = ()


def run(settings: commands.FitSettings) -> Result:
    """Fit a classifier and write it. An interrupted run is resumed from the cache of states.

    An anchor's id is its row in the train file, from 0.

    Raises:
        UserError: anything that cannot work, including another process that writes to the file, which stays as it is.
    """
    inputs.join_processes(settings.distributed)
    path = pathlib.Path(settings.classifier)
    parallel.call_in_main(lambda: _check_replaceable(path, settings.overwrite))
    options = classifier_options(settings)
    task, train, checked, notes = _load_rows(settings)
    model = inputs.read_model(settings.model, settings)
    rows = fit_classifier.first_rows(train, settings.shots, settings.seed) if settings.shots else train
    checked &= {row.row for row in rows}
    progress.note(f"reading {_count(len(rows), 'row')} with {model.name}")
    fitted = fit_classifier.fit(
        model,
        task,
        rows,
        options,
        labels=task.labels,
        num_rows=max(row.row for row in train) + 1,
        checked=checked,
        file_options=settings.file_options(),
        cache=states.open_disk_cache(settings.cache_gb) or states.MemoryCache(_MEMORY),
    )
    classifier_file.save(fitted, path)
    statistics = model.statistics
    return Result(fitted.content, statistics.requested_prompts, statistics.prompts, tuple(notes))


def _load_rows(settings: commands.FitSettings) -> tuple[Task, Sequence[Example], set[int], list[str]]:
    """Return the task, the train rows, corrected and without duplicates, the checked rows, and remarks about both."""
    name = settings.task or catalogue.OWN
    task, train = inputs.load_train(settings, name, settings.train_file)
    if name == catalogue.OWN:
        progress.note(_describe_columns(task, train))
    checked: set[int] = set()
    changes: list[tuple[Example, str]] = []
    for path in settings.corrections:
        found = corrections.read(path, settings.encoding, task, train)
        changes += [(row, found.labels[row.row]) for row in train if row.row in found.labels]
        corrected = [dataclasses.replace(row, label=found.labels.get(row.row, row.label)) for row in train]
        train = corrected
        task = _corrected(task, train, is_inferred=name == catalogue.OWN)
        checked |= found.checked
    notes = []
    if settings.corrections:
        caution = ". If you did not check them, estimates of accuracy are too high" if changes else ""
        notes.append(f"labels corrected: {len(changes)}; checked and right: {len(checked)}{caution}")
        notes += corrections.describe(changes)
    rows = defects.drop(train, ()) if settings.drop_duplicates else train
    _warn(train, rows)
    return task, rows, checked, notes


def _corrected(task: Task, rows: Sequence[Example], is_inferred: bool) -> Task:
    """Return the task of rows with corrected labels, which may have other classes if the task was inferred.

    Raises:
        UserError: a label that a declared task does not have.
    """
    if is_inferred and {row.label for row in rows} != set(task.labels):
        inferred = Task.infer([row.fields for row in rows], [row.label for row in rows], fields=task.fields)
        return dataclasses.replace(task, labels=inferred.labels, label_words=inferred.label_words)
    for row in rows:
        task.label_of(row.place, row.label)
    return task


def _describe_columns(task: Task, rows: Sequence[Example]) -> str:
    """Return which columns of a table are in the prompt and which are left out."""
    left_out = errors.join_names(dict.fromkeys(column for row in rows for column in row.extra))
    fields = errors.join_names(task.fields)
    return f"columns in the prompt: {fields}; left out: {left_out}; to change them: --text_columns="


def _warn(train: Sequence[Example], rows: Sequence[Example]) -> None:
    """Log defects of the train rows, of which `rows` are used."""
    if left_out := len(train) - len(rows):
        logging.warning("--drop_duplicates: %d of %d train rows are left out", left_out, len(train))
    elif found := defects.describe(train, ()):
        logging.warning("%s (see --drop_duplicates): %s", found, defects.places(train))
    inputs.log_warnings(defects.label_warnings(rows))


def _check_replaceable(path: pathlib.Path, overwrite: bool) -> None:
    """Raise UserError if the classifier cannot be written to the path."""
    if path.exists() and path.stat().st_size and not overwrite:
        raise errors.UserError(f"{path}: exists already; choose another file, or add --overwrite")
    files.check_writable(path)


def classifier_options(settings: commands.FitSettings) -> AutoOptions:
    """Return the options of the classifier; raise UserError on one that it does not have."""
    demo_shots: Any = AUTO
    if settings.demo_shots is not None:
        numbers = tuple(None if number < 0 else number for number in settings.demo_shots)
        demo_shots = numbers if len(numbers) > 1 else numbers[0]
    return AutoOptions(
        experts=settings.experts,
        encoder=settings.encoder,
        label_token=settings.label_token,
        random_state=settings.seed,
        store_options=settings.datastore,
        class_prior=settings.prior,
        demo_shots=demo_shots,
    )


def summarize(result: Result) -> str:
    """Return what the binary prints: the rows, the prompts, remarks, and the experts with their weights."""
    content = result.content
    counts: Mapping[str, int] = collections.Counter(row.label for row in content.rows)
    sizes = [counts[label] for label in content.task.labels]
    per_class = " to ".join(f"{count:,}" for count in sorted({min(sizes), max(sizes)})) + " per class"
    if min(sizes) < max(sizes):
        per_class += f"; the largest has {100 * max(sizes) / sum(sizes):.1f} % of the rows"
    views = [
        f"after {_count(len(view.rows), 'demonstration')}" if view.rows else "without demonstrations"
        for view in content.views
    ]
    rows = (
        f"{_count(len(content.rows), 'row')} of {_count(content.task.num_classes, 'class', 'es')} ({per_class}), "
        f"each read by {content.model.name} {' and '.join(views)}"
    )
    prompts = []
    if result.num_prompts:
        prompts = [f"prompts read: {result.num_read:,}; found in the cache: {result.num_prompts - result.num_read:,}"]
    return "\n".join([rows, *prompts, *result.notes, f"\n{content.choice}"])


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number:,} {noun}{plural if number > 1 else ''}"
