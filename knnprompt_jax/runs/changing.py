"""Changes of a classifier by a command, which may be repeated after it died: what it has done already is not done again."""

import collections
import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence

from knnprompt_jax import errors
from knnprompt_jax.classifier.estimator import KNNPrompting
from knnprompt_jax.runs import corrections
from knnprompt_jax.runs import settings as settings_lib
from knnprompt_jax.tasks import sources
from knnprompt_jax.tasks.task import Example, Task

_LISTED = 8


def new_rows(settings: settings_lib.BuildSettings, task: Task) -> list[Example]:
    """The rows to append, of labels that the task lacks too; raises UserError as `sources.load_rows`."""
    if not settings.append:
        return []
    path, encoding, column = settings.append, settings.encoding, settings.label_column
    task = task.with_labels(sources.labels_in(path, encoding, column))
    return sources.load_rows(task, "train", path=path, encoding=encoding, label_column=column)


def relabel(classifier: KNNPrompting, corrected: corrections.Corrections) -> list[str]:
    """Gives anchors the corrected labels, but for those that have them already; says how many, and which are gone."""
    labels = {number: label for number, label in corrected.labels.items() if number in classifier.anchors_}
    if labels:
        classifier.relabel(list(labels), list(labels.values()))
    count = f"{len(labels)} anchors have another label now" if len(labels) != 1 else "1 anchor has another label now"
    return [count, *_gone(corrected.gone)]


def append(classifier: KNNPrompting, rows: Sequence[Example]) -> list[str]:
    """Adds the rows of a file as anchors, but for those that a command has added already; says how many these are.

    A row that the file has twice is added twice. Rows that the classifier was built from do not count as added.
    """
    there = {example.content for example in classifier.anchors_.values()}
    new = [row for row in _known_by_content(rows) if row.content not in there]
    first = classifier.num_rows_
    classifier.append([dataclasses.replace(row, row=first + place) for place, row in enumerate(new)])
    count = len(rows) - len(new)
    return [f"{count} of the {len(rows)} rows to append were there already"] if count else []


def remove(classifier: KNNPrompting, ids: Sequence[int]) -> list[str]:
    """Takes anchors away by their ids; says which were gone already.

    Raises UserError on an id that no anchor can have had, a demonstration's among them, or where no anchor would be left.
    """
    ids, shown = list(dict.fromkeys(ids)), {example.row for example in classifier.demonstrations_}
    for number in ids:
        if number in shown or not 0 <= number < classifier.num_rows_:
            reason = "it is a demonstration's" if number in shown else f"choose from 0 to {classifier.num_rows_ - 1}"
            raise errors.UserError(f"remove_ids: id {number} is no anchor's: {reason}")
    gone = [number for number in ids if number not in classifier.anchors_]
    if left := [number for number in ids if number in classifier.anchors_]:
        classifier.remove(left)
    return _gone(gone)


def _gone(ids: Sequence[int]) -> list[str]:
    more = f" and {len(ids) - _LISTED} more" if len(ids) > _LISTED else ""
    return [f"ids that are no anchors any more: {', '.join(map(str, ids[:_LISTED]))}{more}"] if ids else []


def _known_by_content(rows: Sequence[Example]) -> Iterator[Example]:
    """The rows with the SHA-256 sum of their texts and label, and how many of the same were before them."""
    before: collections.Counter[str] = collections.Counter()
    for row in rows:
        text = json.dumps([row.label, dict(row.fields)], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()
        yield dataclasses.replace(row, content=f"{digest}-{before[digest]}")
        before[digest] += 1
