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
from knnprompt_jax.classifier import base, choosing, evidence, inputs, rules, saving, trials
from knnprompt_jax.classifier import options as options_lib
from knnprompt_jax.classifier.options import AUTO
from knnprompt_jax.store import kernel
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.store.search import SearchOptions
from knnprompt_jax.tasks.task import Example, Task

_STORE_OPTIONS = store_lib.StoreOptions()
_CHOSEN = ("rule", "k", "distance", "weights", "penalty")


class KNNPrompting(base.Classifier):
    """kNN Prompting: the majority label of the k anchors whose next-token distributions are nearest.

    Distance, k, weights and tie-breaking may be changed after `fit`, if the store serves the distance. `predict_proba` returns
    shares of the vote. The attributes are those of `base.Classifier`.
    """

    _options_kind = options_lib.PublishedOptions

    def __init__(
        self,
        model: lm_lib.LanguageModel,
        task: Task,
        k: int = 3,
        *,
        distance: str = "forward",
        weights: str = "uniform",
        demo_shots: int | None = None,
        tie_break: str = "lowest",
        centroid: str = "none",
        approximate_recall: float = 0.0,
        truncation: str = "left",
        label_token: str = "last",
        random_state: int = 0,
        store_options: store_lib.StoreOptions = _STORE_OPTIONS,
    ):
        """Args are as in `options.KNNOptions` and `options.PromptOptions`; the defaults are those of the paper.

        Args:
          demo_shots: demonstrations per class, at most half of its rows; None: as many as the context holds.
          store_options: what is kept of the anchors, and where.
        """
        self.model, self.task, self.k, self.demo_shots = model, task, k, demo_shots
        self.distance, self.weights, self.tie_break, self.centroid = distance, weights, tie_break, centroid
        self.approximate_recall, self.truncation, self.label_token = approximate_recall, truncation, label_token
        self.random_state, self.store_options = random_state, store_options

    @property
    def rule_(self) -> rules.Rule:
        return self._rule(trials.shots_of(self.demonstrations_))

    @property
    def distance_(self) -> str:
        return self.distance

    def draws(self, examples: Sequence[Example]) -> dict[int, trials.Draw]:
        return trials.draws(self, examples, [self.demo_shots])

    def choose(
        self, draws: Mapping[int, trials.Draw], states: Mapping[int, lm_lib.States] | None = None
    ) -> choosing.Choice:
        return choosing.Choice(self._rule(next(iter(draws))))

    def classify(self, states: lm_lib.States) -> tuple[np.ndarray, np.ndarray, kernel.Neighbours]:
        near = self.search(states, self.k)
        return *self._vote(near), near

    def left_out(self) -> tuple[np.ndarray, np.ndarray]:
        options = SearchOptions(min(self.k, len(self.store_) - 1), self.distance)
        return self._vote(evidence.neighbours(self.store_, options, self.device_states()))

    def use(self, choice: choosing.Choice) -> "AutoClassifier":
        """Return an `AutoClassifier` of the same anchors that follows a choice, for example one from `tune`."""
        names = {*self.get_params(deep=False)} & {*saving.parameter_names(AutoClassifier), "model", "task"}
        kept = {name: getattr(self, name) for name in names}
        return _following(AutoClassifier(**{**kept, "k": AUTO, "distance": AUTO, "weights": AUTO}), self, choice)

    def _vote(self, near: kernel.Neighbours) -> tuple[np.ndarray, np.ndarray]:
        options = self.options_
        return rules.vote(near, self.task.num_classes, options.tie_break, options.weights)

    def _rule(self, demo_shots: int) -> rules.Rule:
        options = self.options_
        return rules.Rule("votes", demo_shots, options.k, options.distance, options.weights)


class AutoClassifier(base.Classifier):
    """A classifier that chooses by leave-one-out what is not given: votes, a linear probe or a blend, and their settings.

    Probabilities are calibrated. `choice_` has all candidates with their scores. The other attributes are those of
    `base.Classifier`.
    """

    _options_kind = options_lib.AutoOptions

    def __init__(
        self,
        model: lm_lib.LanguageModel,
        task: Task,
        *,
        rule: str = AUTO,
        k: int | str = AUTO,
        distance: str = AUTO,
        weights: str = AUTO,
        penalty: float | str = AUTO,
        demo_shots: int | str | Sequence[int | None] | None = AUTO,
        metric: str = choosing.METRICS[0],
        class_prior: Any = None,
        approximate_recall: float = 0.0,
        truncation: str = "left",
        label_token: str = "last",
        random_state: int = 0,
        store_options: store_lib.StoreOptions = _STORE_OPTIONS,
    ):
        """Args are as in `options.RuleOptions` and `options.PromptOptions`.

        Args:
          demo_shots: demonstrations per class, at most half of its rows; None: as many as the context holds; several numbers:
            candidates, each of which costs a pass over at most 1,024 anchors; "auto": as many as the context holds (or a quarter
            of the largest class), 2 and 0 are candidates.
          class_prior: the share of each class among the texts to classify: "uniform", a share for each label, or None, the
            shares of the anchors. It may be changed after `fit`, as may k and a distance that the store serves.
          store_options: what is kept of the anchors, and where.
        """
        self.model, self.task, self.rule, self.k = model, task, rule, k
        self.distance, self.weights, self.penalty, self.demo_shots = distance, weights, penalty, demo_shots
        self.metric, self.class_prior, self.approximate_recall = metric, class_prior, approximate_recall
        self.truncation, self.label_token = truncation, label_token
        self.random_state, self.store_options = random_state, store_options

    @property
    def rule_(self) -> rules.Rule:
        """The chosen rule, with the `k` and `distance` that are given."""
        options = self.options_
        given: dict[str, Any] = {
            name: getattr(options, name) for name in ("k", "distance") if getattr(options, name) != AUTO
        }
        given.setdefault("k", min(self.choice_.rule.k, len(self.store_)))  # Anchors may have been removed.
        return dataclasses.replace(self.choice_.rule, **given)

    @property
    def distance_(self) -> str:
        if self.distance != AUTO:
            return self.distance
        return self.choice_.rule.distance if hasattr(self, "choice_") else ""

    def draws(self, examples: Sequence[Example]) -> dict[int, trials.Draw]:
        shots: Any = self.demo_shots if isinstance(self.demo_shots, list | tuple) else [self.demo_shots]
        if self.demo_shots == AUTO:
            most = trials.most_shots(self.task, examples, self.model) if examples else 0
            shots = trials.candidate_shots(most, examples) if examples else [0]
        return trials.draws(self, examples, shots)

    def choose(
        self,
        draws: Mapping[int, trials.Draw],
        states: Mapping[int, lm_lib.States] | None = None,
        grid: choosing.Grid | None = None,
    ) -> choosing.Choice:
        """Choose among the candidates of the options, or of `grid`. A line on standard error reports the choice."""
        choice = trials.choose(self, draws, grid or self.options_.grid(), self.metric, states)
        if choice.candidates and parallel.is_main():
            print(choice.line, file=sys.stderr, flush=True)
        return choice

    def use_store(self, store: store_lib.Store, *arguments: Any, **options: Any) -> Self:
        super().use_store(store, *arguments, **options)
        hidden_NE = None if self.states_ is None else np.asarray(self.states_.hidden_NE)
        self.fitted_ = rules.Fitted.to(self.choice_.rule, hidden_NE, store.labels_N, self.task.num_classes)
        return self

    def classify(self, states: lm_lib.States) -> tuple[np.ndarray, np.ndarray, kernel.Neighbours]:
        rule, near = self.rule_, self.search(states, self.rule_.k)
        fitted, prior_C = dataclasses.replace(self.fitted_, rule=rule), inputs.prior(self.class_prior, self.labels_)
        p_QC = fitted.probabilities(
            np.asarray(near.labels_Qk), np.asarray(near.distances_Qk), np.asarray(states.hidden_NE), prior_C
        )
        return p_QC.argmax(-1), p_QC, near

    def left_out(self) -> tuple[np.ndarray, np.ndarray]:
        store, rule = self.store_, self.rule_
        options = SearchOptions(min(rule.k, len(store) - 1), rule.distance)
        near = evidence.neighbours(store, options, self.device_states())
        fitted, hidden_NE = dataclasses.replace(self.fitted_, rule=rule), np.asarray(self.kept_states().hidden_NE)
        p_NC = fitted.left_out(np.asarray(near.labels_Qk), np.asarray(near.distances_Qk), hidden_NE, store.labels_N)
        return p_NC.argmax(-1), p_NC

    def check(self, anchors: Sequence[Example] | None = None) -> None:
        inputs.prior(self.class_prior, np.array(self.task.labels))
        super().check(anchors)

    def use(self, choice: choosing.Choice) -> "AutoClassifier":
        """Return a classifier of the same anchors that follows a choice, for example one from `tune`.

        Given settings are replaced by those of the choice.
        """
        given = {name: getattr(choice.rule, name) for name in _CHOSEN if getattr(self, name) != AUTO}
        return _following(AutoClassifier(**{**self.get_params(deep=False), **given}), self, choice)


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


def restore(saved: saving.Saved, model: lm_lib.LanguageModel, options: Any = None) -> Any:
    """Return the classifier of a saved folder; `options` replace its store's placement and memory."""
    if saved.content.kind not in CLASSES:
        raise errors.UserError(f"{saved.folder}: class {saved.content.kind!r}: choose from {', '.join(CLASSES)}")
    return saved.classifier(CLASSES[saved.content.kind], model, options)


def _following(classifier: AutoClassifier, fitted: base.Classifier, choice: choosing.Choice) -> AutoClassifier:
    """Fit the classifier to the anchors of another by a choice."""
    anchors, kept = list(fitted.anchors_.values()), (fitted.num_rows_, fitted.labels_)
    return classifier.fit_states(fitted.device_states(), fitted.demonstrations_, anchors, choice, *kept)
