"""What a fitted classifier answers with: its options and rule, the anchors and their store, and how texts are read and searched for.

`KNNPrompting` is this with what people call. It stands apart so that labelling a file imports no scikit-learn, which takes a second.
"""

import dataclasses
import inspect
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from knnprompt_jax import errors
from knnprompt_jax import lm as lm_lib
from knnprompt_jax.classifier import calibration, choosing, passes, predictions, rules
from knnprompt_jax.classifier.options import AUTO, DEFAULTS, ClassifierOptions
from knnprompt_jax.prompts import layout
from knnprompt_jax.store import centroids, distances, kernel, placement
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.store.search import SearchOptions
from knnprompt_jax.tasks.task import Example, Task

_STORE_OPTIONS = store_lib.StoreOptions()


class Classifier:
    """Options, and once fitted what `KNNPrompting` says of its attributes."""

    def __init__(
        self,
        lm: lm_lib.LanguageModel,
        task: Task,
        k: int | str = DEFAULTS.k,
        *,
        rule: str = DEFAULTS.rule,
        distance: str = DEFAULTS.distance,
        weights: str = DEFAULTS.weights,
        penalty: float | str = DEFAULTS.penalty,
        demo_shots: int | str | Sequence[int | None] | None = AUTO,
        metric: str = DEFAULTS.metric,
        calibrated: bool = DEFAULTS.calibrated,
        class_prior: Any = None,
        centroid: str = DEFAULTS.centroid,
        tie_break: str = DEFAULTS.tie_break,
        approximate_recall: float = DEFAULTS.approximate_recall,
        truncation: str = DEFAULTS.truncation,
        label_token: str = DEFAULTS.label_token,
        random_state: int = DEFAULTS.random_state,
        store_options: store_lib.StoreOptions = _STORE_OPTIONS,
    ):
        """Options as in `ClassifierOptions`: what is "auto" is chosen by `fit`, and `choice_` says what and why.

        As published are k=3, distance="forward" and calibrated=False. `k`, `tie_break`, `class_prior` and a `distance` that the store
        serves may be set after `fit`, too.

        `demo_shots` are demonstrations per class, at most half of its rows; None is as many as the context holds. "auto" tries that
        (or a quarter of the largest class), a few and none, and several numbers try each of them: a pass each, over at most 1,024
        anchors. `class_prior` says how common the classes are among the texts to classify: "uniform", a share for each label, or
        None: as among the anchors. `store_options` say what anchors are kept as, and where.
        """
        self.lm, self.task, self.k, self.demo_shots = lm, task, k, demo_shots
        self.rule, self.weights, self.penalty, self.metric = rule, weights, penalty, metric
        self.calibrated, self.class_prior = calibrated, class_prior
        self.distance, self.centroid, self.tie_break = distance, centroid, tie_break
        self.approximate_recall = approximate_recall
        self.truncation, self.label_token = truncation, label_token
        self.random_state, self.store_options = random_state, store_options

    def use_store(
        self,
        store: store_lib.Store,
        shown: Sequence[Example],
        anchors: Sequence[Example],
        labels_C: np.ndarray | None = None,
        num_rows: int | None = None,
        states: lm_lib.States | None = None,
        choice: choosing.Choice | None = None,
    ) -> Self:
        """As `KNNPrompting.fit_states`, with anchors whose store there is already; the rule is fitted to them.

        Args:
          labels_C: the labels as people write them, in class order; the task's own strings by default.
          num_rows: how many rows were given so far; new ones are counted on from it.
          states: of the anchors, in the store's order, if they are at hand.
          choice: what was chosen; by default what there is.
        """
        if choice or not hasattr(self, "choice_"):
            self.choice_ = choice or choosing.Choice(self.options_.grid().default(len(anchors), 0))
        self.states_ = None if states is None else passes.on_host(states)
        self.demonstrations_, self.store_ = tuple(shown), store
        self.searched_ = centroids.of(store, self.centroid, self.lm.head, self.rule_.distance)
        if not self.options_.is_plain:
            hidden_NE = None if self.states_ is None else np.asarray(self.states_.hidden_NE)
            self.fitted_ = rules.Fitted.to(self.choice_.rule, hidden_NE, store.labels_N, self.task.num_classes)
        self.anchors_ = {example.row: example for example in anchors}
        self.num_rows_ = num_rows or max(example.row for example in (*shown, *anchors)) + 1
        self.labels_ = np.array(self.task.labels) if labels_C is None else labels_C
        self.classes_ = self.labels_[predictions.order(self.labels_)]
        return self

    def read(self, examples: Sequence[Example], shown: Sequence[Example] | None = None) -> lm_lib.States:
        """The states of the examples' prompts after the demonstrations, which are those there are or `shown`."""
        return passes.read(self.lm, self.lay_out(examples, shown))

    def lay_out(self, examples: Sequence[Example], shown: Sequence[Example] | None = None) -> layout.Prompts:
        """The examples' prompts; raises UserError as `layout.lay_out`."""
        shown = self.demonstrations_ if shown is None else shown
        return layout.lay_out(self.task, shown, examples, self.lm.tokenize, self.lm.context, self.truncation)

    def search(self, states: lm_lib.States, k: int, more: int = 0) -> kernel.Neighbours:
        """The k nearest anchors of each state, or the nearest class mean, and `more` if there are; indices are places in the store."""
        self.check()
        options, searched = self.search_options(k), self._fitted().searched_
        options = dataclasses.replace(options, k=max(options.k, min(options.k + more, len(searched))))
        # Calls of about the same size share a compilation of the search too.
        padded = placement.pad(states, passes.next_power(max(1, len(states))))
        return placement.take(searched.search(padded, options), slice(0, len(states)))

    def search_options(self, k: int) -> SearchOptions:
        """What is asked of the store."""
        distance = self.rule_.distance
        return SearchOptions(1 if self.centroid != "none" else k, distance, self.approximate_recall or None)

    def check(self, anchors: Sequence[Example] | None = None) -> None:
        """Raises UserError on an option outside its choices, or on fewer than k anchors where they are given."""
        calibration.prior_of(self.class_prior, np.array(self.task.labels))
        if self.options_.is_plain and self.class_prior is not None:
            raise errors.UserError(
                f"class_prior={self.class_prior!r}: a plain vote has no prior; leave calibrated at True"
            )
        if self.options_.k != AUTO and anchors is not None and self.options_.k > len(anchors):
            raise errors.UserError(f"k={self.k}: there are {len(anchors)} anchors")

    def label_ids(self, task: Task | None = None) -> Sequence[int]:
        """The token by which each class (of this task, or another) is read; where label words are not read, only their number counts."""
        task = task or self.task
        try:
            return layout.label_ids(task, self.lm.tokenize, self.label_token)
        except errors.UserError:
            distance = self.rule_.distance if hasattr(self, "choice_") else self.distance
            if distance != AUTO and distances.get(distance).reads_label_words:
                raise
            return range(task.num_classes)  # They share a token.

    @property
    def options_(self) -> ClassifierOptions:
        """The options, checked: raises UserError on one outside its choices."""
        return ClassifierOptions(
            **{field.name: getattr(self, field.name) for field in dataclasses.fields(ClassifierOptions)}
        )

    @property
    def rule_(self) -> rules.Rule:
        """The rule by which texts are classified: what was chosen, with the `k` and `distance` that are named."""
        options = self.options_
        named = {name: getattr(options, name) for name in ("k", "distance") if getattr(options, name) != AUTO}
        if hasattr(self, "store_"):  # Which may have fewer anchors by now.
            named.setdefault("k", min(self.choice_.rule.k, len(self.store_)))
        return dataclasses.replace(self.choice_.rule, **named)

    def kept_states(self) -> lm_lib.States:
        """`states_`; raises UserError where a store alone was given."""
        states = self._fitted().states_
        if states is None:
            raise errors.UserError("the states of its anchors are not there: only a store was given")
        return states

    def _fitted(self) -> Self:
        if not hasattr(self, "store_"):
            raise errors.UserError("not fitted yet: call fit with texts and labels first, or load a saved classifier")
        return self


PARAMETERS = tuple(name for name in inspect.signature(Classifier).parameters if name not in ("lm", "task"))
"""The options by name, as the constructor takes them after the model and the task."""
