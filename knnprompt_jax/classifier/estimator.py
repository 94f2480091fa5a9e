"""kNN Prompting: the label of the anchors about whose prompts the model says the same (Xu et al., ICLR 2023, Section 3)."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from jax.sharding import Mesh
from sklearn import base

from knnprompt_jax import lm as lm_lib
from knnprompt_jax import parallel
from knnprompt_jax.classifier import (
    anchors,
    answering,
    choosing,
    core,
    explanation,
    inputs,
    leave_one_out,
    passes,
    pickling,
    predictions,
    saving,
    trials,
    tuning,
)
from knnprompt_jax.classifier.options import AUTO, DEFAULTS
from knnprompt_jax.store import kernel
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.store.search import SearchOptions
from knnprompt_jax.tasks.task import Example

_CHOSEN = ("rule", "k", "distance", "weights", "penalty")


class KNNPrompting(core.Classifier, base.ClassifierMixin, base.BaseEstimator):
    """Labels a text by the anchors about whose prompts a frozen language model says the same.

    A few rows of each class become demonstrations, which begin every prompt; all others become anchors.

    Attributes:
      classes_: the labels [C] as they stood in y, sorted; the columns of `predict_proba`.
      demonstrations_: the examples that begin every prompt.
      anchors_: the example of each anchor by its id, which is the number of its row in X, counted on by `partial_fit`.
      labels_: the labels [C] as they stood in y, in the task's order.
      num_rows_: how many rows were given so far.
      choice_: what was chosen and why: a table of all that was tried; `rule_` is the rule itself.
      store_, searched_: the anchors' store, with the same ids; and what is searched, of class means where there is a `centroid`.
      states_: what the model said of the anchors' prompts, in the store's order, in host memory: whatever is fitted again to
        them needs no pass. None where a store alone was given.
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Chooses what is not named, draws the demonstrations and reads all other rows as anchors, in one pass of the model.

        A line on standard error says what was chosen.

        Args:
          X: texts, rows as mappings, or a table of pandas that has the task's fields as columns.
          y: their labels, as the task writes them; numbers and truth values stand for the same as strings.

        Raises:
          UserError: on a row without its fields, an unknown label, an option outside its choices, fewer than k anchors.
        """
        self.check()
        y = list(y)
        examples = inputs.labelled(self.task, X, y)
        draws = trials.draws(self, examples)
        choice = trials.choose(self, draws)
        shown, kept = draws[choice.rule.demo_shots]
        labels_C = inputs.classes_like(self.task, y)
        return self._use_states(self.read(kept, shown), choice, shown, kept, labels_C, len(examples))

    def fit_states(
        self,
        states: lm_lib.States,
        shown: Sequence[Example],
        anchors: Sequence[Example],
        choice: choosing.Choice | None = None,
        num_rows: int | None = None,
    ) -> Self:
        """As `fit`, with demonstrations drawn already, the states of the anchors' prompts, and perhaps what was chosen and, as for
        `use_store`, how many rows there were."""
        shots = trials.shots_of(shown)
        choice = choice or trials.choose(self, {shots: (shown, anchors)}, {shots: states})
        return self._use_states(states, choice, shown, anchors, num_rows=num_rows)

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Adds rows as anchors to those there are; the demonstrations stay. The first call is `fit`.

        A label that the task lacks becomes a class after the others, with the label word that `Task.infer` would give it.
        """
        if not hasattr(self, "store_"):
            return self.fit(X, y)
        y = list(y)
        task = self.task.with_labels(inputs.label_strings(y))
        return self.append(inputs.labelled(task, X, y, self.num_rows_))

    def append(self, new: Sequence[Example]) -> Self:
        """Adds examples, numbered on from `num_rows_`, as anchors; of new classes too, as `partial_fit`."""
        anchors.append(self, new)
        return self

    def relabel(self, ids: Sequence[int], labels: Sequence[Any]) -> Self:
        """Gives anchors other labels, those of new classes too, without a pass of the model.

        Raises:
          UserError: an id twice or that no anchor has, a demonstration's among them; not as many labels as ids.
        """
        anchors.relabel(self._fitted(), ids, labels)
        return self

    def remove(self, ids: Sequence[int]) -> Self:
        """Takes anchors away by their ids; raises UserError on an id that there is not, or where none would be left."""
        anchors.remove(self._fitted(), ids)
        return self

    def answer(self, X: Any) -> predictions.Predictions:
        """Labels, probabilities and neighbours, from one search."""
        self._fitted()
        return self.answer_states(self.read(inputs.queries(self.task, X)))

    def answer_states(self, states: lm_lib.States) -> predictions.Predictions:
        """As `answer`, for texts whose prompts the model has read already."""
        return answering.of_states(self, states)

    def predict(self, X: Any, abstain: float = 0.0) -> np.ndarray:
        """Labels [Q], of y's type; None for a text whose label has a lower probability than `abstain`."""
        return self.answer(X).abstaining(abstain).labels

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes [Q, C], in the order of `classes_`."""
        return self.answer(X).probabilities

    def left_out(self) -> tuple[np.ndarray, np.ndarray]:
        """Each anchor's class [N] by all others and the classes' probabilities [N, C], in class order; see `answering.left_out`."""
        return answering.left_out(self._fitted())

    def kneighbors(
        self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> tuple[np.ndarray, np.ndarray] | np.ndarray:
        """Distances [Q, k] and ids [Q, k] of the nearest anchors, nearest first; without X, of each anchor's, itself left out."""
        self._fitted()
        near = self._neighbours(X, self.rule_.k if n_neighbors is None else n_neighbors)
        ids_Qk = self.searched_.ids_N[np.asarray(near.indices_Qk)]
        return (np.asarray(near.distances_Qk), ids_Qk) if return_distance else ids_Qk

    def tune(self, metric: str = DEFAULTS.metric, ks: Sequence[int] = tuning.KS) -> tuning.Tuning:
        """All rules tried on the anchors, each classified by the others, without a pass of the model; see `tuning.tune`."""
        return tuning.tune(self._fitted(), ks, metric)

    def use(self, choice: choosing.Choice) -> Self:
        """Takes what was chosen, by `tune` perhaps, in the place of what there is, named settings too; no pass of the model."""
        named = {name: getattr(choice.rule, name) for name in _CHOSEN if getattr(self, name) != AUTO}
        self.set_params(**named, calibrated=True, centroid="none")
        states, kept = passes.on_devices(self.kept_states(), self.lm.mesh), (self.labels_, self.num_rows_)
        return self._use_states(states, choice, self.demonstrations_, list(self.anchors_.values()), *kept)

    def explain(self, text: Any, num_tokens: int = 5) -> explanation.Explanation:
        """What the words of one text or row contribute, and its neighbours with what makes them near; see `explanation.explain`."""
        return explanation.explain(self._fitted(), text, num_tokens)

    def save(self, folder: str | pathlib.Path, overwrite: bool = False) -> None:
        """Writes everything but the model into a folder.

        Raises:
          UserError: it exists and is not to be overwritten, another process is writing to it, or the system refuses.
        """
        with saving.lock(pathlib.Path(folder)):
            saving.save(self._fitted(), pathlib.Path(folder), overwrite)

    @classmethod
    def load(
        cls, folder: str | pathlib.Path, lm: lm_lib.LanguageModel | None = None, mesh: Mesh | None = None
    ) -> "KNNPrompting":
        """A saved classifier with its model, which is loaded by the name or folder that it had (over `mesh`) unless given.

        Raises:
          UserError: there is none; a file is missing or altered; the model cannot be had, or is another than the anchors'.
        """
        saved = saving.read(pathlib.Path(folder))
        return saved.classifier(cls, lm or saved.load_model(mesh))

    def __sklearn_clone__(self) -> Self:
        """An unfitted copy, which shares the model: a copy of that would be as large."""
        return type(self)(**self.get_params(deep=False))

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A pickle holds what `save` writes, and names the model."""
        return pickling.reduce(self) if hasattr(self, "store_") else super().__reduce_ex__(protocol)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inputs_tags = dataclasses.replace(tags.input_tags, one_d_array=True, two_d_array=False, string=True)
        return dataclasses.replace(tags, input_tags=inputs_tags)

    def __repr__(self) -> str:
        parameters = {name: getattr(value, "name", value) for name, value in self.get_params(deep=False).items()}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in parameters.items())})"

    def _neighbours(self, X: Any, k: int) -> kernel.Neighbours:
        if X is None:
            return leave_one_out.neighbours(self.store_, SearchOptions(k, self.rule_.distance))
        return self.search(parallel.replicate(self.read(inputs.queries(self.task, X))), k)

    def _use_states(
        self,
        states: lm_lib.States,
        choice: choosing.Choice,
        shown: Sequence[Example],
        anchors: Sequence[Example],
        labels_C: np.ndarray | None = None,
        num_rows: int | None = None,
    ) -> Self:
        """The store of the states by the choice, and all that follows."""
        self.check(anchors)
        self.choice_ = choice
        ids, classes = [example.row for example in anchors], inputs.classes_of(self.task, anchors)
        kept, head = (self.store_options, self.rule_.distance), self.lm.head
        store = store_lib.build(*kept, head, states, classes, self.label_ids(), ids=ids)
        return self.use_store(store, shown, anchors, labels_C, num_rows, states)
