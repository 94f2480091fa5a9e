"""The two classifiers, whose anchors may change: `KNNPrompting` as published (Xu et al., ICLR 2023), and `AutoClassifier`."""

import dataclasses
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from jax.sharding import Mesh

from knnprompt_jax import errors, parallel
from knnprompt_jax import lm as lm_lib
from knnprompt_jax.classifier import base, choosing, inputs, rules, saving, trials
from knnprompt_jax.classifier.choice import Choice
from knnprompt_jax.settings import classifiers
from knnprompt_jax.settings.classifiers import AUTO
from knnprompt_jax.store import kernel, placement
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.tasks.task import Example, Task

LAYER = 0.75  # A probe reads the output of the block at this share of the depth by default.


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
        states = base.to_host(self.host_states(), states)
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
        self,
        store: store_lib.Store,
        anchors: Sequence[Example],
        states: lm_lib.States,
        task: Task,
        num_new_rows: int = 0,
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


class KNNPrompting(ChangeableClassifier):
    """kNN Prompting: the majority label of the k anchors whose next-token distributions are nearest.

    Distance, k, weights and tie-breaking may be changed after `fit`, if the store serves the distance. `predict_proba` returns
    shares of the vote.
    """

    options_kind = classifiers.PublishedOptions
    changeable = ("k", "distance", "weights")

    def choose(self, draws: Mapping[int, trials.Draw], states: Any = None, grid: Any = None) -> Choice:
        options = self.options_
        return Choice(rules.Rule("votes", next(iter(draws)), options.k, options.distance, options.weights))

    def decide(self, near: kernel.Neighbours, states: lm_lib.States | None = None) -> tuple[np.ndarray, np.ndarray]:
        options = self.options_
        return kernel.vote(near, self.task.num_classes, options.tie_break, options.weights)

    def use(self, choice: Choice) -> "AutoClassifier":
        """Return an `AutoClassifier` of the same anchors that follows a choice, for example one from `tune`."""
        shared = {*self.option_names()} & {*AutoClassifier.option_names()} - {*self.changeable}
        options = {name: getattr(self, name) for name in shared}
        return _refitted(AutoClassifier(self.model, self.task, **options), self, choice)


class AutoClassifier(ChangeableClassifier):
    """A classifier that chooses by leave-one-out what is not given: votes, a linear probe or a blend, and their settings.

    Probabilities are calibrated. `choice_` has all candidates with their scores.
    """

    options_kind = classifiers.AutoOptions
    changeable = ("k", "distance")

    def choose(
        self,
        draws: Mapping[int, trials.Draw],
        states: Mapping[int, lm_lib.States] | None = None,
        grid: choosing.Grid | None = None,
    ) -> Choice:
        return trials.choose(self, draws, grid or choosing.Grid.of(self.options_), self.options_.metric, states)

    def use_store(self, store: store_lib.Store, *arguments: Any, **options: Any) -> Self:
        super().use_store(store, *arguments, **options)
        rule = self.choice_.rule
        inputs_NF = None if self.states_ is None else rules.probe_inputs(self.states_, rule.layer)
        self.fitted_ = rules.Fitted.to(rule, inputs_NF, store.labels_N, self.task.num_classes)
        return self

    def decide(self, near: kernel.Neighbours, states: lm_lib.States | None = None) -> tuple[np.ndarray, np.ndarray]:
        fitted = dataclasses.replace(self.fitted_, rule=self.rule_)
        y_Q, prior_C = None, None
        if states is None:
            states, y_Q = self.host_states(), self.store_.labels_N
        else:
            prior_C = inputs.prior(self.options_.class_prior, self.labels_)
        probed_QP = fitted.probed(rules.probe_inputs(states, fitted.rule.layer), y_Q)
        p_QC = fitted.probabilities(np.asarray(near.labels_Qk), np.asarray(near.distances_Qk), probed_QP, prior_C)
        return p_QC.argmax(-1), p_QC

    @property
    def candidate_layers(self) -> tuple[int, ...]:
        num_blocks, layer = self.model.config.num_layers, self.options_.layer
        if layer == AUTO:
            return (max(1, round(LAYER * num_blocks)),)
        if layer > num_blocks:
            raise errors.UserError(f"layer={layer}: the model has {num_blocks} blocks; choose from 0 to {num_blocks}")
        return (layer,) if layer else ()

    def check(self, anchors: Sequence[Example]) -> None:
        _ = self.candidate_layers
        inputs.prior(self.options_.class_prior, np.array(self.task.labels))
        super().check(anchors)

    def use(self, choice: Choice) -> "AutoClassifier":
        """Return a classifier of the same anchors that follows a choice, for example one from `tune`.

        Given settings are replaced by those of the choice.
        """
        settings = ("rule", "k", "distance", "weights", "penalty", "layer")
        replaced = {name: getattr(choice.rule, name) for name in settings if getattr(self, name) != AUTO}
        return _refitted(AutoClassifier(**self.get_params(deep=False) | replaced), self, choice)


CLASSES: dict[str, Any] = {kind.__name__: kind for kind in (KNNPrompting, AutoClassifier)}


def load(
    folder: str | pathlib.Path, model: lm_lib.LanguageModel | None = None, mesh: Mesh | None = None
) -> KNNPrompting | AutoClassifier:
    """Load a saved classifier, of the class that it was saved with.

    Args:
      model: the model of the anchors; by default loaded by the name or folder that it had, over `mesh`.

    Raises:
      UserError: no classifier there; a missing or altered file; a model that cannot be loaded or is not that of the anchors.
    """
    saved = saving.read(pathlib.Path(folder))
    return restore(saved, model or saved.load_model(mesh))


def restore(saved: saving.Saved, model: lm_lib.LanguageModel, store_options: Any = None) -> Any:
    """Return the classifier of a saved folder; `store_options` replace its store's placement and memory."""
    if saved.content.kind not in CLASSES:
        raise errors.UserError(f"{saved.folder}: class {saved.content.kind!r}: choose from {', '.join(CLASSES)}")
    return saved.classifier(CLASSES[saved.content.kind], model, store_options)


def _refitted(classifier: AutoClassifier, fitted: base.Classifier, choice: Choice) -> AutoClassifier:
    """Fit the classifier to the anchors of another by a choice."""
    classifier.source_ = fitted.source_
    return classifier.fit_states(
        fitted.device_states(),
        fitted.demonstrations_,
        list(fitted.anchors_.values()),
        choice,
        fitted.num_rows_,
        fitted.labels_,
    )
