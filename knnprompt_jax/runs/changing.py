"""Change a saved classifier. A change can be repeated after it died: what is done already is not done again."""

import collections
import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

from absl import logging

from knnprompt_jax import errors, files, lm, parallel, states
from knnprompt_jax.classifier import estimator, saving
from knnprompt_jax.runs import corrections, inputs
from knnprompt_jax.settings import commands
from knnprompt_jax.tasks import defects, sources
from knnprompt_jax.tasks.task import Example, listed


def run(settings: commands.FitSettings, folder: pathlib.Path) -> tuple[Any, lm.PassStatistics, tuple[str, ...]]:
    """Remove, relabel and append anchors; return the classifier, what the model read, and remarks for the user.

    Raises:
      UserError: no saved classifier, another model or dtype than its own, an invalid id or row.
    """
    if not folder.parent.is_dir():
        raise errors.UserError(f"{folder}: not a saved classifier: the folder {folder.parent} does not exist")
    saved = saving.read(folder)
    settings, mesh, model = inputs.begin(settings, saved, saved.store_options)
    saved.check(model.identity(settings.dtype, settings.deterministic))
    with saving.lock(folder):
        saving.recovered(folder)
        saved = saving.read(folder)
        rows = _new_rows(settings, saved)
        encoding = settings.encoding or "utf-8"  # Suggestions are UTF-8, whatever the train file was.
        corrected = corrections.read(settings.relabel, encoding, saved.content) if settings.relabel else None
        num_bytes = sum(size for size, _ in saved.manifest.files.values())
        parallel.call_in_main(lambda: files.check_writable(folder, folder=True, num_bytes=num_bytes))
        classifier = estimator.restore(saved, inputs.load_weights(settings, model, mesh))
        classifier.states_cache = states.user_cache(settings.cache_gb)
        before, notes = classifier.store_, remove(classifier, settings.remove_ids)
        notes += _relabel(classifier, corrected) if corrected else []
        notes += append(classifier, rows)
        if classifier.store_ is not before:
            saving.save(classifier, folder, overwrite=True)
    return classifier, classifier.model.statistics, tuple(notes)


def append(classifier: Any, rows: Sequence[Example]) -> list[str]:
    """Add the rows of a file as anchors, except those that an earlier command has added; report how many these are.

    A row that the file has twice is added twice. Rows that the classifier was fitted to do not count as added.
    """
    known = {example.content for example in classifier.anchors_.values()}
    new = [row for row in _with_content(rows) if row.content not in known]
    first = classifier.num_rows_
    classifier.append([dataclasses.replace(row, row=first + place) for place, row in enumerate(new)])
    count = len(rows) - len(new)
    return [f"{count} of the {len(rows)} rows to append were added already"] if count else []


def remove(classifier: Any, ids: Sequence[int]) -> list[str]:
    """Remove anchors by their ids; report which were removed already.

    Raises:
      UserError: an id that no anchor can have had, a demonstration's id, or no anchor would be left.
    """
    demonstrations = {example.row for example in classifier.demonstrations_}
    for number in ids:
        if number in demonstrations or not 0 <= number < classifier.num_rows_:
            reason = (
                "is a demonstration" if number in demonstrations else f"choose from 0 to {classifier.num_rows_ - 1}"
            )
            raise errors.UserError(f"--remove_ids: id {number} is no anchor: {reason}")
    missing = [number for number in dict.fromkeys(ids) if number not in classifier.anchors_]
    if left := [number for number in dict.fromkeys(ids) if number in classifier.anchors_]:
        classifier.remove(left)
    return _report_missing(missing)


def _relabel(classifier: Any, corrected: corrections.Corrections) -> list[str]:
    """Give anchors the corrected labels; report how many changed, and which anchors were removed already."""
    labels = {number: label for number, label in corrected.labels.items() if number in classifier.anchors_}
    if labels:
        classifier.relabel(list(labels), list(labels.values()))
    return [f"anchors relabelled: {len(labels)}", *_report_missing(corrected.missing)]


def _new_rows(settings: commands.FitSettings, saved: saving.Saved) -> list[Example]:
    """Return the rows to append, also of new labels; log rows that contradict a row of the classifier."""
    if not settings.append:
        return []
    task, path, source = saved.content.task, settings.append, settings.source(saved.content.source)
    rows = sources.load_rows(task, "train", path=path, new_labels=True, on_bad=settings.on_bad, **source)
    task.with_labels(row.label for row in rows)  # Raises on a label that is the word of another.
    matches = defects.matches(rows, (*saved.content.demonstrations, *saved.content.anchors))
    if found := [(row.source, row.label, known.row, known.label) for row, known in matches if row.label != known.label]:
        message = (
            "%d of %d rows to append contradict a row of the classifier with the same text: %s is %r, row %d is %r"
        )
        logging.warning(message, len(found), len(rows), *found[0])
    return rows


def _report_missing(ids: Sequence[int]) -> list[str]:
    return [f"anchors removed earlier: {listed(ids)}"] if ids else []


def _with_content(rows: Sequence[Example]) -> Iterator[Example]:
    """Yield the rows with the SHA-256 of their texts and label, and how many equal rows come before them."""
    earlier: collections.Counter[str] = collections.Counter()
    for row in rows:
        text = json.dumps([row.label, dict(row.fields)], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()
        yield dataclasses.replace(row, content=f"{digest}-{earlier[digest]}")
        earlier[digest] += 1
