"""kNN Prompting in scikit-learn's words."""

import dataclasses
import inspect
import numbers
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.sharding import Mesh

from knnprompt_jax import errors, parallel
from knnprompt_jax import lm as lm_lib
from knnprompt_jax.classifier import (
    answers,
    demonstrations,
    explanation,
    inputs,
    leave_one_out,
    models,
    passes,
    saving,
    scikit,
    tuning,
)
from knnprompt_jax.methods import knn_prompting
from knnprompt_jax.prompts import layout
from knnprompt_jax.store import kernel, placement, representations, stores
from knnprompt_jax.tasks.task import Example, Task

TRUNCATIONS = ("left", "error")  # To drop demonstrations would give texts others than the anchors had.


class KNNPrompting(scikit.Classifier):
    """Labels a text by the anchors about whose prompts a frozen language model says the same (Xu et al., ICLR 2023).

    A few rows of each class become demonstrations, which begin every prompt; all others become anchors.

    Attributes:
      classes_: the labels [C] as they stood in y, sorted; the columns of `predict_proba`.
      demonstrations_: the examples that begin every prompt.
      anchors_: the example of each anchor by its number, which is that of its row in X, counted on by `partial_fit`.
      store_: the datastore, whose ids are these numbers.
    """

    def __init__(
        self,
        lm: lm_lib.LanguageModel,
        task: Task,
        k: int = knn_prompting.K,
        *,
        demo_shots: int | None = None,
        direction: str = "forward",
        representation: str = "distribution",
        tie_break: str = "lowest",
        truncation: str = "left",
        label_token: str = "last",
        kind: str = "factored",
        key_dtype: str = "float32",
        memory_mb: float = stores.MEMORY_MB,
        random_state: int = 0,
    ):
        """`k`, `representation` and `tie_break` may be set after `fit` as well; they do not change the anchors.

        Args:
          k: neighbours that vote.
          demo_shots: demonstrations a class, at most half of its rows; None is as many as the context holds.
          direction: "forward", KL(text ‖ anchor), Eq. 5 of the paper; "released", KL(anchor ‖ text), its code.
          representation: "distribution", "partial" or "partial_raw" (label words alone), "hidden" (Euclidean).
          tie_break: of equal votes, the first class of the task ("lowest") or that of the "nearest" neighbour.
          truncation: of prompts longer than the context, "left" (their last tokens stay) or "error".
          label_token: by which token a label word is read, "last" or "first"; only the "partial" ones read it.
          kind: "factored" or "dense", as `stores.build` has it, with `key_dtype` and `memory_mb`.
          random_state: seed of the draw of demonstrations.
        """
        self.lm, self.task, self.k, self.demo_shots = lm, task, k, demo_shots
        self.direction, self.representation, self.tie_break = direction, representation, tie_break
        self.truncation, self.label_token = truncation, label_token
        self.kind, self.key_dtype, self.memory_mb = kind, key_dtype, memory_mb
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> "KNNPrompting":
        """Draws the demonstrations and reads all other rows as anchors, in one pass of the model.

        Args:
          X: texts, rows as mappings, or a table of pandas that has the task's fields as columns.
          y: their labels, as the task writes them; numbers and truth values stand for the same as strings.

        Raises:
          UserError: on a row without its fields, an unknown label, an option outside its choices, fewer than k anchors.
        """
        y = list(y)
        classifier, examples = self._classifier(), inputs.labelled(self.task, X, y)
        shown, kept = demonstrations.draw(self.task, examples, self.lm, self.demo_shots, self.random_state)
        if self.k > len(kept):
            raise errors.UserError(f"k={self.k}: there are {len(kept)} anchors, from {len(examples)} rows")
        self.demonstrations_ = tuple(shown)
        store = classifier.fit(self._read(kept), inputs.classes_of(self.task, kept)).datastore
        self._keep(
            dataclasses.replace(store, ids_N=inputs.numbers_of(kept)),
            kept,
            inputs.classes_like(self.task, y),
            len(examples),
        )
        return self

    def partial_fit(self, X: Any, y: Any) -> "KNNPrompting":
        """Adds rows as anchors to those there are; the demonstrations stay. The first call is `fit`."""
        if not self.__sklearn_is_fitted__():
            return self.fit(X, y)
        new = inputs.labelled(self.task, X, y, self.num_rows_)
        if new:
            classes, ids = inputs.classes_of(self.task, new), inputs.numbers_of(new)
            store = self.store_.append(self._read(new), classes.tolist(), ids.tolist())
            self._keep(store, [*self.anchors_.values(), *new], self._labels_C, self.num_rows_ + len(new))
        return self

    def answer(self, X: Any) -> answers.Answers:
        """Labels, probabilities and neighbours, from one search."""
        return self._answers(self._neighbours(X, self.k))

    def answer_states(self, states: lm_lib.States) -> answers.Answers:
        """As `answer`, for texts whose prompts the model has read already."""
        self._fitted_store()
        return self._answers(self._search(parallel.replicate(states), self.k))

    def predict(self, X: Any) -> np.ndarray:
        """Labels [Q], of y's type."""
        return self.answer(X).labels

    def predict_proba(self, X: Any) -> np.ndarray:
        """The classes' shares [Q, C] of the vote, in the order of `classes_`."""
        return self.answer(X).probabilities

    def kneighbors(
        self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> tuple[np.ndarray, np.ndarray] | np.ndarray:
        """Distances [Q, k] and numbers [Q, k] of the nearest anchors, nearest first.

        Without X, the neighbours of each anchor, itself left out.
        """
        found = self._answers(self._neighbours(X, self.k if n_neighbors is None else n_neighbors))
        return (found.distances, found.ids) if return_distance else found.ids

    def score(self, X: Any, y: Any) -> float:
        """Accuracy, between 0 and 1."""
        return float(np.mean(self.predict(X) == np.asarray(list(y))))

    def tune(self, ks: Sequence[int] = tuning.KS) -> tuning.Tuning:
        """Leave-one-out accuracies for every k, representation and direction: no pass of the model is needed.

        Raises:
          UserError: the store is dense, or no k is smaller than the number of anchors.
        """
        store = self._fitted_store()
        try:
            label_ids = layout.label_ids(self.task, self.lm.tokenize, self.label_token)
        except errors.UserError:
            label_ids = None
        anchors = tuple(self.anchors_.values())
        return tuning.tune(self.task, anchors, store, self.lm.head, label_ids, ks, self.tie_break)

    def explain(self, text: Any, num_tokens: int = 5) -> explanation.Explanation:
        """The neighbours of one text or row, and the tokens that most tell it from each of them.

        Raises:
          UserError: the store keeps no distributions: a dense one of another representation.
        """
        store, (query,) = self._fitted_store(), inputs.queries(self.task, [text])
        states = parallel.replicate(self._read([query]))
        found = self._search(states, self.k)
        logp_V = np.asarray(representations.log_probabilities(self.lm.head, states))[0]
        neighbours = explanation.neighbours(
            store, found, logp_V, self.anchors_, self._value, num_tokens, self.lm.tokenizer.decode
        )
        said = self._answers(found)
        shares = dict(zip(self.classes_.tolist(), said.probabilities[0].tolist(), strict=True))
        return explanation.Explanation(query.fields, said.labels[0].item(), shares, neighbours)

    def save(self, folder: str | pathlib.Path, overwrite: bool = False) -> None:
        """Writes everything but the model into a folder.

        Raises:
          UserError: the folder exists and is not to be overwritten.
        """
        store, parameters = self._fitted_store(), self.get_params()
        del parameters["lm"], parameters["task"]
        rows = (self.demonstrations_, tuple(self.anchors_.values()))
        content = saving.Content(self.task, parameters, self._labels_C.tolist(), self.num_rows_, *rows)
        saving.save(pathlib.Path(folder), content, self.lm, store, overwrite)

    @classmethod
    def load(
        cls, folder: str | pathlib.Path, lm: lm_lib.LanguageModel | None = None, mesh: Mesh | None = None
    ) -> "KNNPrompting":
        """A saved classifier with its model, which is loaded by the name or folder that it had (over `mesh`) unless given.

        Nothing that is read is run.

        Raises:
          UserError: there is none; a file is missing or altered; the model cannot be had, or is another than the anchors'.
        """
        folder = pathlib.Path(folder)
        content, provenance = saving.read(folder)
        if lm is None:
            lm = models.of_store(folder, provenance.model, dtype=provenance.dtype, mesh=mesh)
        known = set(inspect.signature(cls).parameters) - {"lm", "task"}
        if set(content.parameters) != known:
            raise errors.UserError(f"{folder}: has other options than {', '.join(sorted(known))}")
        loaded = cls(lm, content.task, **content.parameters)
        loaded._classifier()
        loaded.demonstrations_ = content.demonstrations
        store = saving.load_store(folder, content, lm, loaded._label_ids())
        loaded._keep(store, content.anchors, np.array(content.labels), content.num_rows)
        return loaded

    def _classifier(self) -> knn_prompting.KNNPrompting:
        """The method with these options, which it checks."""
        for name, kind in (("k", numbers.Integral), ("memory_mb", numbers.Real), ("random_state", numbers.Integral)):
            if not isinstance(getattr(self, name), kind):
                raise errors.UserError(f"{name}={getattr(self, name)!r}: choose a number")
        knn_prompting.published_k(self.k, self.k)
        for name, choices in (("truncation", TRUNCATIONS), ("label_token", layout.LABEL_TOKENS)):
            if getattr(self, name) not in choices:
                raise errors.UserError(f"{name}={getattr(self, name)!r}: choose from {', '.join(choices)}")
        return knn_prompting.KNNPrompting(
            self.lm.head,
            self._label_ids(),
            k=self.k,
            direction=self.direction,
            representation=self.representation,
            tie_break=self.tie_break,
            kind=self.kind,
            key_dtype=self.key_dtype,
            memory_mb=self.memory_mb,
        )

    def _label_ids(self) -> Sequence[int]:
        try:
            return layout.label_ids(self.task, self.lm.tokenize, self.label_token)
        except errors.UserError:
            if self.representation in ("partial", "partial_raw"):
                raise
            return range(self.task.num_classes)  # They share a token, but only their number counts.

    def _neighbours(self, X: Any, k: int) -> kernel.Neighbours:
        """Indices are places in the store."""
        store = self._fitted_store()
        if X is None:
            return leave_one_out.neighbours(store, k, self.direction, self.representation)
        return self._search(parallel.replicate(self._read(inputs.queries(self.task, X))), k)

    def _search(self, states: lm_lib.States, k: int) -> kernel.Neighbours:
        self._classifier()
        # Calls of about the same size share a compilation of the search too.
        padded = placement.pad(states, passes.next_power(max(1, len(states))))
        found = self.store_.search(padded, k, self.direction, self.representation)
        return placement.take(found, slice(0, len(states)))

    def _answers(self, found: kernel.Neighbours) -> answers.Answers:
        return answers.of(found, self.store_, self._labels_C, self.tie_break)

    def _value(self, label: str) -> Any:
        """A label of the task as it stood in y."""
        return self._labels_C[self.task.class_index(label)].item()

    def _keep(self, store: stores.Store, anchors: Sequence[Example], labels_C: np.ndarray, num_rows: int) -> None:
        self.store_, self.num_rows_ = store, num_rows
        self.anchors_ = {example.row: example for example in anchors}
        self._labels_C = labels_C
        self.classes_ = labels_C[answers.order(labels_C)]

    def _fitted_store(self) -> stores.Store:
        if not self.__sklearn_is_fitted__():
            raise errors.UserError("not fitted yet: call fit with texts and labels first, or load a saved classifier")
        return self.store_

    def _read(self, examples: Sequence[Example]) -> lm_lib.States:
        prompts = layout.lay_out(
            self.task, self.demonstrations_, examples, self.lm.tokenize, self.lm.context, self.truncation
        )
        return passes.read(self.lm, prompts)
