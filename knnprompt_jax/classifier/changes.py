"""Changes of a fitted classifier: anchors are added, relabelled and removed without a new pass over the others."""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from knnprompt_jax import lm, parallel
from knnprompt_jax.classifier import base, inputs
from knnprompt_jax.store import placement
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.tasks.task import Example, Task


class ChangeableClassifier(base.Classifier):
    """A classifier whose anchors may change after `fit`."""

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Add rows as anchors; the demonstrations stay. The first call is `fit`.

        A label that the task lacks becomes a new class, the last one, with the label word that `Task.infer` would give it.
        """
        if not hasattr(self, "store_"):
            return self.fit(X, y)
        y = list(y)
        task = self.task.with_labels(inputs.label_strings(y))
        return self.append(inputs.labelled(task, X, y, self.num_rows_))

    def append(self, examples: Sequence[Example]) -> Self:
        """Add examples, numbered from `num_rows_`, as anchors; new labels become new classes, as in `partial_fit`."""
        if not examples:
            return self
        task = self.task.with_labels(example.label for example in examples)
        store, states = self._store_for(task), self.read(examples)
        store = store.append(states, inputs.classes_of(task, examples), [example.row for example in examples])
        num_new_rows = examples[-1].row + 1 - self.num_rows_
        states = base.on_host(self.host_states(), states)
        return self._change(store, [*self.anchors_.values(), *examples], states, task, num_new_rows)

    def relabel(self, ids: Sequence[int], labels: Sequence[Any]) -> Self:
        """Give anchors other labels, also of new classes; no prompt is read.

        Raises:
          UserError: a repeated id, an id that no anchor has, or not one label per id.
        """
        self._check_fitted()
        wanted = inputs.labels_by_id(self.demonstrations_, ids, labels)
        task = self.task.with_labels(wanted.values())
        classes = [task.class_index(label) for label in wanted.values()]
        store = self._store_for(task).relabel(list(wanted), classes)
        examples = [
            dataclasses.replace(example, label=wanted.get(number, example.label))
            for number, example in self.anchors_.items()
        ]
        return self._change(store, examples, self.host_states(), task)

    def remove(self, ids: Sequence[int]) -> Self:
        """Remove anchors by their ids; raise UserError on an unknown id, or if no anchor would be left."""
        self._check_fitted()
        store = self.store_.remove(ids)
        left = [self.anchors_[number] for number in store.ids_N.tolist()]
        states = placement.take(self.host_states(), np.isin(self.store_.ids_N, store.ids_N))
        return self._change(store, left, states, self.task)

    def _store_for(self, task: Task) -> store_lib.Store:
        """Return the store for a task with more labels; raise UserError if two label words must differ and do not."""
        store = self.store_
        if task == self.task:
            return store
        codec = dataclasses.replace(store.codec, label_ids=tuple(self.label_ids(task)))
        if not codec.keeps_label_words:
            return dataclasses.replace(store, codec=codec)
        return store_lib.build(
            self.store_options,
            codec.built_for,
            self.model.head,
            self.device_states(),
            store.labels_N,
            codec.label_ids,
            ids=store.ids_N,
        )

    def _change(
        self, store: store_lib.Store, anchors: Sequence[Example], states: lm.States, task: Task, num_new_rows: int = 0
    ) -> Self:
        """Replace the anchors and the task, after `num_new_rows` more rows, and fit the current rule to them.

        A line on standard error names each new class, because a misspelt label becomes one.
        """
        for label, word in list(zip(task.labels, task.label_words, strict=True))[self.task.num_classes :]:
            if parallel.is_main():
                print(f"new class {label!r}, whose label word is {word!r}", file=sys.stderr, flush=True)
        labels_C = inputs.classes_like(task, self.labels_.tolist())
        self.task, choice = task, dataclasses.replace(self.choice_, is_earlier=True)
        return self.use_store(
            store, self.demonstrations_, anchors, choice, self.num_rows_ + num_new_rows, labels_C, states
        )
