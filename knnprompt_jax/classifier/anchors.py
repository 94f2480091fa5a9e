"""Anchors added to a fitted classifier, given other labels and taken away, without a pass of the model over those that are there."""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from knnprompt_jax import lm as lm_lib
from knnprompt_jax import parallel
from knnprompt_jax.classifier import inputs, passes
from knnprompt_jax.classifier.core import Classifier
from knnprompt_jax.store import placement
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.tasks.task import Example, Task


def append(classifier: Classifier, new: Sequence[Example]) -> None:
    """Adds examples, which are read; a label that the task lacks becomes a class."""
    if not new:
        return
    task = classifier.task.with_labels(example.label for example in new)
    store, states = _store_for(classifier, task), classifier.read(new)
    store = store.append(states, inputs.classes_of(task, new), [example.row for example in new])
    every = passes.on_host(classifier.kept_states(), states)
    _change(classifier, store, [*classifier.anchors_.values(), *new], every, task, classifier.num_rows_ + len(new))


def relabel(classifier: Classifier, ids: Sequence[int], labels: Sequence[Any]) -> None:
    """Gives anchors other labels; raises UserError as `KNNPrompting.relabel`."""
    wanted = inputs.labels_by_id(classifier.demonstrations_, ids, labels)
    task = classifier.task.with_labels(wanted.values())
    classes = [task.class_index(label) for label in wanted.values()]
    store = _store_for(classifier, task).relabel(list(wanted), classes)
    examples = [
        dataclasses.replace(example, label=wanted.get(number, example.label))
        for number, example in classifier.anchors_.items()
    ]
    _change(classifier, store, examples, classifier.kept_states(), task)


def remove(classifier: Classifier, ids: Sequence[int]) -> None:
    """Takes anchors away; raises UserError as `KNNPrompting.remove`."""
    store = classifier.store_.remove(ids)
    left = [classifier.anchors_[number] for number in store.ids_N.tolist()]
    states = placement.take(classifier.kept_states(), np.isin(classifier.store_.ids_N, store.ids_N))
    _change(classifier, store, left, states, classifier.task)


def _store_for(classifier: Classifier, task: Task) -> store_lib.Store:
    """The store for a task with more labels; raises UserError where classes cannot be told apart that have to be."""
    store = classifier.store_
    if task == classifier.task:
        return store
    codec = dataclasses.replace(store.codec, label_ids=tuple(classifier.label_ids(task)))
    if not codec.keeps_label_words:
        return dataclasses.replace(store, codec=codec)
    states = passes.on_devices(classifier.kept_states(), classifier.lm.mesh)
    how = (classifier.store_options, codec.built_for, classifier.lm.head)
    return store_lib.build(*how, states, store.labels_N, codec.label_ids, ids=store.ids_N)


def _change(
    classifier: Classifier,
    store: store_lib.Store,
    anchors: Sequence[Example],
    states: lm_lib.States,
    task: Task,
    num_rows: int | None = None,
) -> None:
    """Puts these anchors in the place of those there are, and perhaps more classes; what was chosen is fitted to them.

    A line on standard error names each new class, for a label that was misspelt becomes a class.
    """
    for label, word in list(zip(task.labels, task.label_words, strict=True))[classifier.task.num_classes :]:
        if parallel.is_main():
            print(f"new class {label!r}, whose label word is {word!r}", file=sys.stderr, flush=True)
    labels_C = inputs.classes_like(task, classifier.labels_.tolist())
    classifier.task, num_rows = task, num_rows or classifier.num_rows_
    choice = dataclasses.replace(classifier.choice_, is_earlier=True)
    classifier.use_store(store, classifier.demonstrations_, anchors, labels_C, num_rows, states, choice)
