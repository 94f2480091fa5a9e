"""The two classifiers, whose anchors may change: `KNNPrompting` as published (Xu et al., ICLR 2023), and `AutoClassifier`."""

import dataclasses
import difflib
import pathlib
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from jax.sharding import Mesh

from knnprompt_jax import errors, parallel
from knnprompt_jax import lm as lm_lib
from knnprompt_jax.classifier import base, inputs, saving, trials
from knnprompt_jax.rules import choosing
from knnprompt_jax.rules import rule as rules
from knnprompt_jax.rules.choice import Choice
from knnprompt_jax.settings import classifiers
from knnprompt_jax.settings.classifiers import AUTO
from knnprompt_jax.store import kernel, placement
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.tasks.task import SKIP, Example, Task

LAYER = 0.75  # A probe reads the output of the block at this share of the depth by default.


class ChangeableClassifier(base.Classifier):
    """A classifier whose anchors may change after `fit`."""

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Add rows as anchors; the demonstrations stay. The first call is `fit`.

        A label that the task lacks becomes a new class, the last one, with the label word that `Task.infer` would give it.
        """
        if not hasattr(self, "store_"):
            return self.fit(X, y)
        y = inputs.label_list(y)
        task = self.task.with_labels(inputs.label_strings(y, self.task.empty == SKIP))
        return self.append(inputs.labelled(task, X, y, self.num_rows_), self.num_rows_ + len(y))

    def append(self, examples: Sequence[Example], num_rows: int | None = None) -> Self:
        """Add examples, numbered from `num_rows_`, as anchors; new labels become new classes, as in `partial_fit`.

        Args:
          num_rows: the number of rows given with these, including rows that are left out; by default all are examples.
        """
        num_rows = num_rows or self.num_rows_ + len(examples)
        if not examples:
            self.num_rows_ = num_rows
            return self
        task = self.task.with_labels(example.label for example in examples)
        self.label_ids(task)  # Refuses label words before the model reads.
        states = placement.concatenate(self.host_states(), parallel.replicate(self.read(examples, warns=True)))
        return self._change([*self.anchors_.values(), *examples], states, task, num_rows)

    def relabel(self, ids: Sequence[int], labels: Sequence[Any]) -> Self:
        """Give anchors other labels, also of new classes; no prompt is read.

        Raises:
          UserError: a repeated id, an id that no anchor has, or not one label per id.
        """
        self._check_fitted()
        wanted = inputs.labels_by_id(self.demonstrations_, ids, labels)
        self._check_ids(wanted)
        if not wanted:
            return self
        anchors = [
            dataclasses.replace(example, label=wanted.get(number, example.label))
            for number, example in self.anchors_.items()
        ]
        return self._change(anchors, self.host_states(), self.task.with_labels(wanted.values()))

    def remove(self, ids: Sequence[int]) -> Self:
        """Remove anchors by their ids; raise UserError on an unknown id, or if fewer than k (AutoClassifier: 1) would be left."""
        self._check_fitted()
        ids = inputs.anchor_ids(ids)
        self._check_ids(ids)
        if not ids:
            return self
        is_left_N = ~np.isin(self.store_.ids_N, ids)
        if not is_left_N.any():
            raise errors.UserError("no anchor would be left in the store")
        anchors = [self.anchors_[number] for number in self.store_.ids_N[is_left_N].tolist()]
        return self._change(anchors, placement.take(self.host_states(), is_left_N), self.task)

    def _check_ids(self, ids: Iterable[int]) -> None:
        if unknown := sorted(set(ids) - set(self.anchors_)):
            raise errors.UserError(f"id {unknown[0]} is not in the store")

    def _change(
        self, anchors: Sequence[Example], states: lm_lib.States, task: Task, num_rows: int | None = None
    ) -> Self:
        """Replace the anchors and the task, and fit the current rule to them; `num_rows` is the number of rows given so far.

        A line on standard error names each new class, because a misspelt label becomes one. A class that no demonstration and no
        anchor has any more is dropped.
        """
        task = task.only({example.label for example in (*self.demonstrations_, *anchors)})
        inputs.prior(getattr(self, "class_prior", None), np.array(task.labels))  # Refuses one without a new class.
        if "k" in self.changeable:
            self.check(anchors)
        store = self.build_store(parallel.put_rows(states, self.model.mesh), anchors, task)
        for label, word in zip(task.labels, task.label_words, strict=True):
            if label not in self.task.labels and parallel.is_main():
                near = difflib.get_close_matches(label, self.task.labels, 1, 0.8)
                similar = f"; the class {near[0]!r} is similar" if near else ""
                print(f"new class {label!r}, whose label word is {word!r}{similar}", file=sys.stderr, flush=True)
        labels_C = inputs.classes_like(task, self.labels_.tolist())
        self.use_task(task, self.given_task)
        choice = dataclasses.replace(self.choice_, is_earlier=True)
        return self.use_store(
            store, self.demonstrations_, anchors, choice, num_rows or self.num_rows_, labels_C, states
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Return the pickle of a fitted classifier: its model's name and the files of a saved folder."""
        if not hasattr(self, "store_"):
            return super().__reduce_ex__(protocol)
        with tempfile.TemporaryDirectory() as place:
            self.save(folder := pathlib.Path(place, "classifier"))
            content = {
                path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
            }
        return _unpickle, (self.model, content)


class KNNPrompting(ChangeableClassifier):
    """kNN Prompting: the majority label of the k anchors whose next-token distributions are nearest.

    Distance, k, weights and tie-breaking may be changed after `fit`, if the store serves the distance. `predict_proba` returns
    shares of the vote.
    """

    options_kind = classifiers.PublishedOptions
    changeable = ("k", "distance", "weights")

    def choose(self, draws: Mapping[int, trials.Draw], states: Any = None) -> Choice:
        options = self.options_
        return Choice(rules.Rule("votes", next(iter(draws)), options.k, options.distance, options.weights))

    def decide(self, near: kernel.Neighbours, states: lm_lib.States | None = None) -> tuple[np.ndarray, np.ndarray]:
        options = self.options_
        return kernel.vote(near, self.task.num_classes, options.tie_break, options.weights)

    def use(self, choice: Choice) -> "AutoClassifier":
        """Return an `AutoClassifier` of the same anchors that follows a choice, for example one from `tune`."""
        shared = {*self.option_names()} & {*AutoClassifier.option_names()} - {*self.changeable}
        options = {name: getattr(self, name) for name in shared} | {**self.made_with_}
        del options["centroid"]
        return _refitted(AutoClassifier(self.model, self.given_task, **options), self, choice)


class AutoClassifier(ChangeableClassifier):
    """A classifier that chooses by leave-one-out what is not given: votes, a linear probe or a blend, and their settings.

    Probabilities are calibrated. `choice_` has all candidates with their scores. After `fit`, only `class_prior` and
    `approximate_recall` may be changed.
    """

    options_kind = classifiers.AutoOptions

    def choose(self, draws: Mapping[int, trials.Draw], states: Mapping[int, lm_lib.States] | None = None) -> Choice:
        return trials.choose(self, draws, choosing.Grid.of(self.options_), self.options_.metric, states)

    def use_store(self, store: store_lib.Store, *arguments: Any, **options: Any) -> Self:
        super().use_store(store, *arguments, **options)
        rule = self.choice_.rule
        inputs_NF = None if self.states_ is None else rules.probe_inputs(self.states_, rule.layer)
        self.fitted_ = rules.FittedRule.fit(rule, inputs_NF, store.labels_N, self.task.num_classes)
        return self

    def decide(self, near: kernel.Neighbours, states: lm_lib.States | None = None) -> tuple[np.ndarray, np.ndarray]:
        fitted = dataclasses.replace(self.fitted_, rule=self.rule_)
        y_Q, prior_C = None, None
        if states is None:
            states, y_Q = self.host_states(), self.store_.labels_N
        else:
            prior_C = inputs.prior(self.options_.class_prior, self.labels_)
        near_Qk = np.asarray(near.labels_Qk), np.asarray(near.distances_Qk)
        p_QC = fitted.probabilities(*near_Qk, rules.probe_inputs(states, fitted.rule.layer), y_Q, prior_C)
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

        Given settings are replaced by those of the choice, or by "auto" if its rule does not use them.
        """
        given = [name for name in ("rule", *classifiers.USED_BY["blend"]) if getattr(self, name) != AUTO]
        replaced = {name: choice.rule.named.get(name, AUTO) for name in given}
        replaced |= {name: value for name, value in self.made_with_.items() if name in self.option_names()}
        replaced |= {"task": self.given_task, "metric": choice.metric}
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
    if model is not None:
        inputs.check_model(model)
    saved = saving.read(pathlib.Path(folder))
    return restore(saved, model or saved.load_model(mesh))


def restore(saved: saving.Saved, model: lm_lib.LanguageModel) -> Any:
    """Return the classifier of a saved folder.

    Raises:
      UserError: the saved options, model or states do not match the class, `model` or rows.
    """
    content, kind = saved.content, CLASSES.get(saved.content.kind)
    if not kind:
        raise errors.UserError(f"{saved.folder}: class {content.kind!r}: choose from {', '.join(CLASSES)}")
    if set(content.parameters) != set(names := kind.option_names()):
        raise errors.UserError(f"{saved.folder}: its options are not {', '.join(names)}")
    classifier = kind(model, **{**content.parameters, "store_options": saved.store_options})
    classifier.use_task(content.task, content.given_task)
    classifier.choice_ = content.choice  # The chosen distance decides which label words are read.
    saved.check(model.identity, content.task, classifier.label_ids())
    classifier.source_, store = content.source, saved.load_store(model, saved.store_options)
    rows, labels_C = (content.demonstrations, content.anchors), np.array(content.labels)
    return classifier.use_store(store, *rows, content.choice, content.num_rows, labels_C, saved.states(model))


def _unpickle(model: lm_lib.LanguageModel, content: Mapping[str, bytes]) -> Any:
    """Return the classifier whose saved folder had these files."""
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place, "classifier")
        for path, data in content.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        return restore(saving.read(folder), model)


def _refitted(classifier: AutoClassifier, fitted: base.Classifier, choice: Choice) -> AutoClassifier:
    """Fit the classifier to the anchors of another by a choice."""
    classifier.source_, anchors = fitted.source_, list(fitted.anchors_.values())
    classifier.use_task(fitted.task, fitted.given_task)
    states, demonstrations = fitted.device_states(), fitted.demonstrations_
    return classifier.fit_states(states, demonstrations, anchors, choice, fitted.num_rows_, fitted.labels_)
