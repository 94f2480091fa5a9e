"""The two classifiers: `KNNPrompting` as published (Xu et al., ICLR 2023, Section 3), and `AutoClassifier`, which chooses its rule."""

import dataclasses
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from jax.sharding import Mesh

from knnprompt_jax import errors, parallel
from knnprompt_jax import lm as lm_lib
from knnprompt_jax.classifier import base, changes, choosing, inputs, rules, saving, trials
from knnprompt_jax.classifier.choice import Choice
from knnprompt_jax.settings import classifiers
from knnprompt_jax.settings.classifiers import AUTO
from knnprompt_jax.store import kernel
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.tasks.task import Example

LAYER = (
    0.75  # The place, as a share of all blocks, of the block whose output a probe reads beside the state by default.
)


class KNNPrompting(changes.ChangeableClassifier):
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
        return rules.vote(near, self.task.num_classes, options.tie_break, options.weights)

    def use(self, choice: Choice) -> "AutoClassifier":
        """Return an `AutoClassifier` of the same anchors that follows a choice, for example one from `tune`."""
        shared = {*self.option_names()} & {*AutoClassifier.option_names()} - {*self.changeable}
        options = {name: getattr(self, name) for name in shared}
        return _refitted(AutoClassifier(self.model, self.task, **options), self, choice)


class AutoClassifier(changes.ChangeableClassifier):
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
        """Choose as in `base.Classifier.choose`. A line on standard error reports the choice."""
        choice = trials.choose(self, draws, grid or choosing.Grid.of(self.options_), self.options_.metric, states)
        if choice.candidates and parallel.is_main():
            print(choice.line, file=sys.stderr, flush=True)
        return choice

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
