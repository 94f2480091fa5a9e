"""kNN Prompting: the label of the anchors about whose prompts the model says the same (Xu et al., ICLR 2023, Section 3)."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any, Self

import jax
import numpy as np
from jax.sharding import Mesh
from sklearn import base

from knnprompt_jax import errors, parallel
from knnprompt_jax import lm as lm_lib
from knnprompt_jax.classifier import (
    demonstrations,
    explanation,
    inputs,
    leave_one_out,
    passes,
    pickling,
    predictions,
    rounding,
    saving,
    tuning,
)
from knnprompt_jax.classifier.options import DEFAULTS, ClassifierOptions
from knnprompt_jax.prompts import layout
from knnprompt_jax.store import centroids, distances, kernel, placement
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.store.search import SearchOptions
from knnprompt_jax.tasks.task import Example, Task

_STORE_OPTIONS = store_lib.StoreOptions()


class KNNPrompting(base.ClassifierMixin, base.BaseEstimator):
    """Labels a text by the anchors about whose prompts a frozen language model says the same.

    A few rows of each class become demonstrations, which begin every prompt; all others become anchors.

    Attributes:
      classes_: the labels [C] as they stood in y, sorted; the columns of `predict_proba`.
      demonstrations_: the examples that begin every prompt.
      anchors_: the example of each anchor by its id, which is the number of its row in X, counted on by `partial_fit`.
      labels_: the labels [C] as they stood in y, in the task's order.
      num_rows_: how many rows were given so far.
      store_, searched_: the anchors' store, with the same ids; and what is searched, of class means where there is a `centroid`.
    """

    def __init__(
        self,
        lm: lm_lib.LanguageModel,
        task: Task,
        k: int = DEFAULTS.k,
        *,
        distance: str = DEFAULTS.distance,
        centroid: str = DEFAULTS.centroid,
        tie_break: str = DEFAULTS.tie_break,
        approximate_recall: float = DEFAULTS.approximate_recall,
        demo_shots: int | None = None,
        truncation: str = DEFAULTS.truncation,
        label_token: str = DEFAULTS.label_token,
        random_state: int = DEFAULTS.random_state,
        store_options: store_lib.StoreOptions = _STORE_OPTIONS,
    ):
        """Options as in `ClassifierOptions`; `k`, `tie_break` and a `distance` that the store serves may be set after `fit`, too.

        `demo_shots` are demonstrations per class, at most half of its rows; None is as many as the context holds.
        `store_options` say what anchors are kept as, and where.
        """
        self.lm, self.task, self.k, self.demo_shots = lm, task, k, demo_shots
        self.distance, self.centroid, self.tie_break = distance, centroid, tie_break
        self.approximate_recall = approximate_recall
        self.truncation, self.label_token = truncation, label_token
        self.random_state, self.store_options = random_state, store_options

    def fit(self, X: Any, y: Any) -> Self:
        """Draws the demonstrations and reads all other rows as anchors, in one pass of the model.

        Args:
          X: texts, rows as mappings, or a table of pandas that has the task's fields as columns.
          y: their labels, as the task writes them; numbers and truth values stand for the same as strings.

        Raises:
          UserError: on a row without its fields, an unknown label, an option outside its choices, fewer than k anchors.
        """
        self.check()
        y = list(y)
        examples = inputs.labelled(self.task, X, y)
        shown, kept = demonstrations.draw(self.task, examples, self.lm, self.demo_shots, self.random_state)
        self.check(kept)
        store = self._build(self.read(kept, shown), kept)
        return self.use_store(store, shown, kept, inputs.classes_like(self.task, y), len(examples))

    def fit_states(self, states: lm_lib.States, shown: Sequence[Example], anchors: Sequence[Example]) -> Self:
        """As `fit`, with demonstrations drawn already and the states of the anchors' prompts."""
        return self.use_store(self._build(states, anchors), shown, anchors)

    def use_store(
        self,
        store: store_lib.Store,
        shown: Sequence[Example],
        anchors: Sequence[Example],
        labels_C: np.ndarray | None = None,
        num_rows: int | None = None,
    ) -> Self:
        """As `fit_states`, with anchors whose store there is already.

        Args:
          labels_C: the labels as people write them, in class order; the task's own strings by default.
          num_rows: how many rows were given so far; new ones are counted on from it.
        """
        self.demonstrations_, self.store_ = tuple(shown), store
        self.searched_ = centroids.of(store, self.centroid, self.lm.head, self.distance)
        self.anchors_ = {example.row: example for example in anchors}
        self.num_rows_ = num_rows or max(example.row for example in (*shown, *anchors)) + 1
        self.labels_ = np.array(self.task.labels) if labels_C is None else labels_C
        self.classes_ = self.labels_[predictions.order(self.labels_)]
        return self

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Adds rows as anchors to those there are; the demonstrations stay. The first call is `fit`."""
        if not hasattr(self, "store_"):
            return self.fit(X, y)
        return self.append(inputs.labelled(self.task, X, y, self.num_rows_))

    def append(self, new: Sequence[Example]) -> Self:
        """Adds examples, numbered on from `num_rows_`, as anchors."""
        if new:
            ids, classes = [example.row for example in new], inputs.classes_of(self.task, new)
            store, anchors = self.store_.append(self.read(new), classes, ids), [*self.anchors_.values(), *new]
            self.use_store(store, self.demonstrations_, anchors, self.labels_, self.num_rows_ + len(new))
        return self

    def remove(self, ids: Sequence[int]) -> Self:
        """Takes anchors away by their ids; raises UserError on an id that there is not, or where none would be left."""
        store = self._fitted().store_.remove(ids)
        left = [self.anchors_[number] for number in store.ids_N.tolist()]
        return self.use_store(store, self.demonstrations_, left, self.labels_, self.num_rows_)

    def answer(self, X: Any) -> predictions.Predictions:
        """Labels, probabilities and neighbours, from one search."""
        self._fitted()
        return self.answer_states(self.read(inputs.queries(self.task, X)))

    def answer_states(self, states: lm_lib.States) -> predictions.Predictions:
        """As `answer`, for texts whose prompts the model has read already."""
        return self._predictions(*self.voters(parallel.replicate(states)))

    def predict(self, X: Any) -> np.ndarray:
        """Labels [Q], of y's type."""
        return self.answer(X).labels

    def predict_proba(self, X: Any) -> np.ndarray:
        """The classes' shares [Q, C] of the vote, in the order of `classes_`."""
        return self.answer(X).probabilities

    def kneighbors(
        self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> tuple[np.ndarray, np.ndarray] | np.ndarray:
        """Distances [Q, k] and ids [Q, k] of the nearest anchors, nearest first; without X, of each anchor's, itself left out."""
        said = self._predictions(self._neighbours(X, self.k if n_neighbors is None else n_neighbors))
        return (said.distances, said.ids) if return_distance else said.ids

    def tune(self, ks: Sequence[int] = tuning.KS) -> tuning.Tuning:
        """Leave-one-out accuracies for every k and distance, without a pass of the model; see `tuning.tune`."""
        return tuning.tune(self._fitted(), ks)

    def explain(self, text: Any, num_tokens: int = 5) -> explanation.Explanation:
        """The neighbours of one text or row, and the tokens that tell it from each of them; see `explanation.explain`."""
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
        return cls.of_saved(saved, lm or saved.load_model(mesh))

    @classmethod
    def of_saved(
        cls, saved: saving.Saved, lm: lm_lib.LanguageModel, options: store_lib.StoreOptions | None = None
    ) -> "KNNPrompting":
        """As `load`, of a folder that is read already; placement and memory are those of the options, or as it was made."""
        content = saved.content
        loaded = cls(lm, content.task, **saved.parameters(cls))
        loaded.check()
        saved.check(lm.identity, content.task, loaded.label_ids())
        kept = (content.demonstrations, content.anchors, np.array(content.labels), content.num_rows)
        return loaded.use_store(saved.load(lm, options), *kept)

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

    def voters(self, states: lm_lib.States) -> tuple[kernel.Neighbours, np.ndarray | None]:
        """The neighbours that vote on each state, and whether rounding decides the majority [Q], as in `Predictions`."""
        looked_at, k = self.search(states, self.k, rounding.LOOKED_AT), self.search_options(self.k).k
        near = jax.tree.map(lambda array_QK: array_QK[:, :k], looked_at)
        bounds = rounding.bounds(looked_at, distances.get(self.distance), self.lm, states, self.searched_.codec)
        if bounds is None:
            return near, None
        classes_Q, _ = predictions.vote(near, self.task.num_classes, self.tie_break)
        vote = (k, len(self.searched_), classes_Q, self.tie_break)
        return near, rounding.by_votes(looked_at, bounds, *vote)

    def search_options(self, k: int) -> SearchOptions:
        """What is asked of the store."""
        return SearchOptions(1 if self.centroid != "none" else k, self.distance, self.approximate_recall or None)

    def check(self, anchors: Sequence[Example] | None = None) -> None:
        """Raises UserError on an option outside its choices, or on fewer than k anchors where they are given."""
        ClassifierOptions(**{field.name: getattr(self, field.name) for field in dataclasses.fields(ClassifierOptions)})
        if anchors is not None and self.k > len(anchors):
            raise errors.UserError(f"k={self.k}: there are {len(anchors)} anchors")

    def label_ids(self) -> Sequence[int]:
        """The token by which each class is read; where label words are not read, only their number counts."""
        try:
            return layout.label_ids(self.task, self.lm.tokenize, self.label_token)
        except errors.UserError:
            if distances.get(self.distance).reads_label_words:
                raise
            return range(self.task.num_classes)  # They share a token.

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
            return leave_one_out.neighbours(self._fitted().store_, SearchOptions(k, self.distance))
        self._fitted()
        return self.search(parallel.replicate(self.read(inputs.queries(self.task, X))), k)

    def _predictions(self, near: kernel.Neighbours, by_rounding_Q: np.ndarray | None = None) -> predictions.Predictions:
        return predictions.of(near, self.searched_.ids_N, self.labels_, self.tie_break, by_rounding_Q)

    def _build(self, states: lm_lib.States, anchors: Sequence[Example]) -> store_lib.Store:
        self.check(anchors)
        ids, classes = [example.row for example in anchors], inputs.classes_of(self.task, anchors)
        kept, head = (self.store_options, self.distance), self.lm.head
        return store_lib.build(*kept, head, states, classes, self.label_ids(), ids=ids)

    def _fitted(self) -> Self:
        if not hasattr(self, "store_"):
            raise errors.UserError("not fitted yet: call fit with texts and labels first, or load a saved classifier")
        return self
