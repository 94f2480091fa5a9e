"""The base of both classifiers: fitting to anchors, their store and its search, predictions and explanations."""

import abc
import dataclasses
import numbers
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import jax
import numpy as np
from absl import logging

from knnprompt_jax import errors, parallel, rounding
from knnprompt_jax import lm as lm_lib
from knnprompt_jax import states as states_lib
from knnprompt_jax.classifier import explanation, inputs, saving, trials
from knnprompt_jax.prompts import layout
from knnprompt_jax.rules import choosing, evidence
from knnprompt_jax.rules.choice import Choice
from knnprompt_jax.rules.rule import Rule
from knnprompt_jax.settings import classifiers, stores
from knnprompt_jax.settings.classifiers import AUTO
from knnprompt_jax.store import distances, kernel, placement
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.store.search import SearchOptions
from knnprompt_jax.tasks import defects
from knnprompt_jax.tasks.task import Example, Task

# Options that take effect from the next `fit`.
MADE_WITH = ("truncation", "label_token", "centroid", "store_options", "random_state")


class Classifier(inputs.ScikitInterface, abc.ABC):
    """A classifier whose anchors are training texts, represented by a frozen language model's states.

    A few rows of each class become demonstrations, which begin every prompt. All other rows become anchors.

    Attributes:
      classes_: the labels [C] as in y, sorted; the columns of `predict_proba`.
      labels_: the labels [C] as in y, in the task's order, which is the order of class indices.
      demonstrations_: the examples that begin every prompt.
      anchors_: the example of each anchor by its id, the number of its row in X, continued by `partial_fit`.
      num_rows_: the number of rows given so far.
      store_: the anchors' store, with the same ids.
      searched_: the store that is searched: `store_`, or the class means.
      states_: the states of the anchors' prompts, in the store's order, in host memory; None if only a store was given.
      choice_: the chosen rule and the reasons for it; `rule_` is the rule in use.
      source_: the encoding and label column of the file that the rows came from, if it was one.
      made_with_: the values of `MADE_WITH` that the anchors were made with.
      fitted_to_: the task and the identity of the model, without its name, that the anchors were made with.
    """

    source_: Mapping[str, str] = {}
    changeable: tuple[str, ...] = ()  # Settings of the rule that may change after `fit`.
    distance: str
    demo_shots: Any
    truncation: str
    label_token: str
    approximate_recall: float
    random_state: int
    store_options: stores.StoreOptions
    centroid: str = "none"
    # A search over k, or repeated predictions of the same texts, read each text once.
    states_cache: states_lib.AnyCache | None = states_lib.MemoryCache(256 * 2**20)

    @property
    def rule_(self) -> Rule:
        """The rule in use: the chosen one, with the present values of the settings that may change after `fit`."""
        options = self.options_
        given = {name: getattr(options, name) for name in self.changeable if getattr(options, name) != AUTO}
        given.setdefault("k", min(self.choice_.rule.k, len(self.store_)))  # Anchors may have been removed.
        return dataclasses.replace(self.choice_.rule, **given)

    @property
    def candidate_layers(self) -> tuple[int, ...]:
        """The blocks whose outputs a rule may read; the states to choose by must include them."""
        return ()

    @property
    def layers(self) -> tuple[int, ...]:
        """The blocks whose outputs the chosen rule reads."""
        return self.choice_.rule.layers

    @property
    def distance_(self) -> str:
        """The distance in use, or, before `fit`, the given one; empty if it will be chosen."""
        if hasattr(self, "choice_") and "distance" not in self.changeable:
            return self.choice_.rule.distance
        return "" if self.distance == AUTO else self.distance

    @abc.abstractmethod
    def choose(self, draws: Mapping[int, trials.Draw], states: Mapping[int, lm_lib.States] | None = None) -> Choice:
        """Choose a rule with these draws from the options' candidates; read the anchors unless `states` has them."""

    @abc.abstractmethod
    def decide(self, near: kernel.Neighbours, states: lm_lib.States | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return classes [Q] and probabilities [Q, C], in class order, of texts with these neighbours and states.

        Without states, the texts are the anchors, each with its neighbours among the others.
        """

    def classify(self, states: lm_lib.States) -> tuple[np.ndarray, np.ndarray, kernel.Neighbours]:
        """Return classes [Q], probabilities [Q, C] in class order, and the neighbours, of states replicated on every device."""
        near = self.search(states, self.rule_.k)
        return *self.decide(near, states), near

    def left_out(self) -> tuple[np.ndarray, np.ndarray]:
        """Return each anchor's leave-one-out class [N] and class probabilities [N, C], in class order.

        Raises:
          UserError: there is a single anchor, or the classifier predicts by class means.
        """
        self._check_neighbours()
        if len(self.store_) < 2:
            raise errors.UserError("leave-one-out needs at least two anchors: add rows")
        options = SearchOptions(min(self.rule_.k, len(self.store_) - 1), self.rule_.distance)
        return self.decide(evidence.neighbours(self.store_, options, self.device_states()))

    def fit(self, X: Any, y: Any, sample_weight: None = None) -> Self:
        """Choose what is not given, draw the demonstrations, and read all other rows as anchors.

        Args:
          X: texts, rows as mappings, or a pandas table whose columns are the task's fields.
          y: their labels, as the task writes them; integers and booleans match the strings of the task.
          sample_weight: not supported; scikit-learn's tools pass None.

        Raises:
          UserError: a row without its fields, an unknown label, an invalid option, sample weights, or fewer than k anchors.
        """
        if sample_weight is not None:
            raise errors.UserError("sample_weight: not supported, because all anchors count the same; leave it out")
        # A copy is fitted, so that a failure, and another thread that predicts, find the earlier fit.
        fitted = object.__new__(type(self))
        earlier = ("choice_", "made_with_", "source_")
        fitted.__dict__.update({name: value for name, value in vars(self).items() if name not in earlier})
        self.__dict__ = fitted._fit(X, y).__dict__
        return self

    def _fit(self, X: Any, y: Any) -> Self:
        inputs.check_model(self.model)
        X, y = list(X) if isinstance(X, Iterator) else X, inputs.label_list(y)
        given = self.given_task
        self.use_task(Task.infer(X, y) if given is None else given, given)
        examples = inputs.labelled(self.task, X, y)
        for warning in defects.label_warnings(examples):
            logging.warning("%s", warning)
        draws = trials.draws(self, examples)
        choice = self.choose(draws)
        demonstrations, anchors = draws[choice.rule.demo_shots]
        states = self.read(anchors, demonstrations, choice.rule.layers)
        labels_C = inputs.classes_like(self.task, y)
        return self.fit_states(states, demonstrations, anchors, choice, len(y), labels_C)

    def fit_states(
        self,
        states: lm_lib.States,
        demonstrations: Sequence[Example],
        anchors: Sequence[Example],
        choice: Choice | None = None,
        num_rows: int | None = None,
        labels_C: np.ndarray | None = None,
    ) -> Self:
        """Fit to anchors whose states are known; the arguments are as in `use_store`."""
        self.check(anchors)
        shots = trials.shots_of(demonstrations)
        self.choice_ = choice or self.choose({shots: (demonstrations, anchors)}, {shots: states})
        if not set(self.layers) <= set(states.layers):
            states = self.read(anchors, demonstrations)
        states = states.with_layers(self.layers)
        store = self.build_store(states, anchors, self.task)
        return self.use_store(store, demonstrations, anchors, self.choice_, num_rows, labels_C, states)

    def build_store(self, states: lm_lib.States, anchors: Sequence[Example], task: Task) -> store_lib.Store:
        """Return a store of these anchors; raise UserError if the distance needs label words of different tokens."""
        return store_lib.build(
            self.made_with("store_options"),
            self.choice_.rule.distance,
            self.model.head,
            states,
            inputs.classes_of(task, anchors),
            self.label_ids(task),
            ids=[example.row for example in anchors],
        )

    def use_store(
        self,
        store: store_lib.Store,
        demonstrations: Sequence[Example],
        anchors: Sequence[Example],
        choice: Choice | None = None,
        num_rows: int | None = None,
        labels_C: np.ndarray | None = None,
        states: lm_lib.States | None = None,
    ) -> Self:
        """Take an existing store of the anchors.

        Args:
          choice: the chosen rule; by default the current one.
          num_rows: the number of rows given so far, from which new rows are numbered.
          labels_C: the labels as in y, in class order; by default the task's strings.
          states: of the anchors, in the store's order, if they are known.
        """
        if choice or not hasattr(self, "choice_"):
            self.choice_ = choice or self.choose({trials.shots_of(demonstrations): (demonstrations, anchors)})
        if not hasattr(self, "made_with_"):
            self.made_with_ = {name: getattr(self, name) for name in MADE_WITH}
        self.fitted_to_ = self._task_and_model
        self.states_ = None if states is None else jax.tree.map(np.asarray, parallel.replicate(states))
        self.demonstrations_, self.store_ = tuple(demonstrations), store
        self.searched_ = store_lib.centroids(store, self.made_with("centroid"), self.model.head, self.rule_.distance)
        self.anchors_ = {example.row: example for example in anchors}
        self.num_rows_ = num_rows or max(example.row for example in (*demonstrations, *anchors)) + 1
        self.labels_ = np.array(self.task.labels) if labels_C is None else labels_C
        self.classes_ = self.labels_[inputs.label_order(self.labels_)]
        return self

    def answer(self, X: Any) -> inputs.Predictions:
        """Return labels, probabilities and neighbours, from one search."""
        self._check_fitted()
        return self.answer_states(self.read(inputs.queries(self.task, X)))

    def answer_states(self, states: lm_lib.States) -> inputs.Predictions:
        """Return predictions for texts whose prompts have these states."""
        classes_Q, p_QC, near = self.classify(parallel.replicate(states))
        k = None if self.made_with("centroid") == "none" else 0  # Class means are no anchors.
        return inputs.Predictions(
            labels=self.labels_[classes_Q],
            probabilities=p_QC[:, inputs.label_order(self.labels_)],
            distances=np.asarray(near.distances_Qk)[:, :k],
            ids=self.searched_.ids_N[np.asarray(near.indices_Qk)][:, :k],
        )

    def predict(self, X: Any, abstain: float = 0.0) -> np.ndarray:
        """Return labels [Q], of y's type; None where the label has a lower probability than `abstain`."""
        return self.answer(X).abstaining(abstain).labels

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of the classes [Q, C], in the order of `classes_`."""
        return self.answer(X).probabilities

    def kneighbors(
        self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> tuple[np.ndarray, np.ndarray] | np.ndarray:
        """Return distances [Q, k] and ids [Q, k] of the nearest anchors, nearest first.

        Without X, return the nearest other anchors of each anchor.
        """
        self._check_fitted()
        k = self.rule_.k if n_neighbors is None else n_neighbors
        if isinstance(k, bool) or not isinstance(k, numbers.Integral):
            raise errors.UserError(f"n_neighbors={k!r}: give a whole number")
        if X is None:
            near = evidence.neighbours(self.store_, SearchOptions(k, self.rule_.distance), self.device_states())
        else:
            self._check_neighbours()
            near = self.search(parallel.replicate(self.read(inputs.queries(self.task, X))), k)
        ids_Qk = self.store_.ids_N[np.asarray(near.indices_Qk)]
        return (np.asarray(near.distances_Qk), ids_Qk) if return_distance else ids_Qk

    def explain(self, text: Any, num_tokens: int = 5) -> explanation.Explanation:
        """Return the contributions of the words of one text or row, and its neighbours with the terms of their distance."""
        self._check_fitted()
        return explanation.explain(self, text, num_tokens)

    def tune(self, metric: str | None = None, ks: Sequence[int] = classifiers.TUNED_KS) -> trials.Tuning:
        """Try every rule, distance, weighting and penalty, and all `ks` that have enough anchors, on the anchors.

        Candidates are compared by `metric`, by default the classifier's, or log loss. Each anchor is classified by the others. The
        demonstrations stay, and no prompt is read.

        Raises:
          UserError: fewer than `choosing.FEWEST` anchors, or no k between 1 and the number of other anchors.
        """
        self._check_fitted()
        metric = metric or getattr(self, "metric", classifiers.METRICS[0])
        if metric not in classifiers.METRICS:
            raise errors.UserError(f"metric={metric!r}: choose from {', '.join(classifiers.METRICS)}")
        count, anchors = len(self.anchors_), list(self.anchors_.values())
        if count < choosing.FEWEST:
            raise errors.UserError(f"{count} anchors are too few to choose by: at least {choosing.FEWEST} are needed")
        grid = choosing.Grid(ks=tuple(sorted({k for k in ks if 1 <= k < count})))
        if not grid.ks:
            raise errors.UserError(f"ks={tuple(ks)}: choose from 1 to {count - 1}, the number of other anchors")
        shots = self.rule_.demo_shots
        draws, states = {shots: (self.demonstrations_, anchors)}, {shots: self.device_states()}
        choice = dataclasses.replace(trials.choose(self, draws, grid, metric, states), is_tuned=True)
        return trials.Tuning(choice, tuple(trials.warnings(self, anchors, choice)))

    def save(self, folder: str | pathlib.Path, overwrite: bool = False) -> None:
        """Write everything but the model into a folder.

        Raises:
          UserError: the folder exists and `overwrite` is False, another process writes to it, or the system refuses.
        """
        self._check_fitted()
        self.label_ids()  # Refuses a distance between label words that share a token.
        with saving.lock(pathlib.Path(folder)):
            saving.save(self, pathlib.Path(folder), overwrite)

    def read(
        self,
        examples: Sequence[Example],
        demonstrations: Sequence[Example] | None = None,
        layers: tuple[int, ...] | None = None,
        warns: bool = False,
    ) -> lm_lib.States:
        """Return the states of the examples' prompts; demonstrations and layers are by default those of the fit.

        With `warns`, log how many prompts are too long.
        """
        prompts = self.build_prompts(examples, demonstrations)
        if warns:
            layout.warn_truncated(prompts.num_truncated, prompts.num_prompts, self.model.context)
        layers = self.layers if layers is None else layers
        return states_lib.read(self.model, prompts, self.states_cache, title="reading", repeated=True, layers=layers)

    def build_prompts(
        self, examples: Sequence[Example], demonstrations: Sequence[Example] | None = None
    ) -> layout.Prompts:
        """Return the examples' prompts; raises UserError as `layout.build_prompts`."""
        demonstrations = self.demonstrations_ if demonstrations is None else demonstrations
        return layout.build_prompts(
            self.task, demonstrations, examples, self.model.tokenize, self.model.context, self.made_with("truncation")
        )

    def search(self, states: lm_lib.States, k: int) -> kernel.Neighbours:
        """Return the k nearest anchors of each state, or the nearest class mean; indices are places in the store."""
        # Pad to a power of two, so that calls of about the same size share a compiled program.
        padded = placement.pad(states.with_layers(()), rounding.next_power_of_two(max(1, len(states))))
        number = k if self.made_with("centroid") == "none" else 1
        options = SearchOptions(number, self.rule_.distance, self.approximate_recall or None)
        return placement.take(self.searched_.search(padded, options), slice(0, len(states)))

    def check(self, anchors: Sequence[Example]) -> None:
        """Raise UserError on an invalid option, or if there are fewer than k anchors."""
        k = self.options_.k
        if isinstance(k, int) and k > len(anchors):
            raise errors.UserError(f"k={k}: there are {len(anchors)} anchors; choose k ≤ {len(anchors)}")

    def label_ids(self, task: Task | None = None) -> Sequence[int]:
        """Return the token of each class's label word; none if words share a token and the distance reads none."""
        task = task or self.task
        try:
            return layout.label_ids(task, self.model.tokenize, self.made_with("label_token"))
        except errors.UserError:
            if self.distance_ and distances.get(self.distance_).reads_label_words:
                raise
            return ()

    def host_states(self) -> lm_lib.States:
        """Return `states_`; raise UserError if only a store was given."""
        self._check_fitted()
        if self.states_ is None:
            raise errors.UserError("the states of the anchors are missing: only a store was given")
        return self.states_

    def device_states(self) -> lm_lib.States:
        """Return `states_` with rows split over every device of the model."""
        return parallel.put_rows(self.host_states(), self.model.mesh)

    def made_with(self, name: str) -> Any:
        """Return the value of an option that the anchors were made with, or, before `fit`, its present value."""
        return getattr(self, "made_with_", {}).get(name, getattr(self, name))

    def _check_neighbours(self) -> None:
        if (centroid := self.made_with("centroid")) != "none":
            raise errors.UserError(
                f"fitted with centroid={centroid!r}: class means have no neighbours; fit with centroid='none'"
            )

    def _check_fitted(self) -> None:
        if not hasattr(self, "store_"):
            raise errors.UserError("not fitted yet: call fit with texts and labels first, or load a saved classifier")
        if self.fitted_to_ != self._task_and_model:
            raise errors.UserError("its task or its model was changed after fit: call fit again")

    @property
    def _task_and_model(self) -> tuple[Task, lm_lib.Identity]:
        return self.task, self.model.identity._replace(name="")  # A model may move.
