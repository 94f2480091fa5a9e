"""kNN Prompting: the label of the anchors about whose prompts the model says the same (Xu et al., ICLR 2023, Section 3)."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from knnprompt_jax import errors, lm
from knnprompt_jax.methods import base
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.store import centroids, codec, dense, kernel, representations, searching, stores

DIRECTIONS = codec.DIRECTIONS
TIE_BREAKS = ("lowest", "nearest")
WEIGHTS = ("uniform", "distance")
K = 3


def published_k(k: int, anchor_shots: int) -> int:
    """The k of the released code: never more than the anchors of a class."""
    if k < 1:
        raise errors.UserError(f"k={k}: at least 1 neighbour is needed")
    return min(k, anchor_shots)


class KNNPrompting(base.StateClassifier):
    """k nearest anchors in KL divergence (or in L2 of hidden states), majority vote."""

    def __init__(
        self,
        head: head_lib.Head,
        label_ids: Sequence[int],
        *,
        k: int = K,
        direction: str = "forward",
        representation: str = "distribution",
        tie_break: str = "lowest",
        weights: str = "uniform",
        centroid: str = "none",
        kind: str = "dense",
        key_dtype: str = "float32",
        memory_mb: float = stores.MEMORY_MB,
        on_host: bool = False,
        approximate_recall: float | None = None,
    ):
        """`direction` is "forward" (KL(p‖k_i), Eq. 5) or "released" (KL(k_i‖p)); `representation` one of `REPRESENTATIONS`.

        `weights` are those of the neighbours in `predict_proba`: equal, or by "distance" e^−d. The vote itself, and so
        `predict`, is the published majority of equals.

        With a `centroid` ("arithmetic" or "geometric") each class has one anchor and the nearest decides. `kind`,
        `key_dtype` and `on_host` are those of the datastore (`stores.build`), and `memory_mb` is what a search may take
        beside it; `approximate_recall` is that of `knn.search`.

        Raises:
            UserError: a value outside its choices.
        """
        for name, value, choices in (
            ("direction", direction, DIRECTIONS),
            ("representation", representation, representations.REPRESENTATIONS),
            ("tie_break", tie_break, TIE_BREAKS),
            ("weights", weights, WEIGHTS),
            ("centroid", centroid, dense.CENTROIDS),
            ("kind", kind, stores.KINDS),
            ("key_dtype", key_dtype, codec.KEY_DTYPES),
        ):
            if value not in choices:
                raise errors.UserError(f"{name}={value!r}: choose from {', '.join(choices)}")
        if centroid != "none" and representation in ("hidden", "partial_raw"):
            raise errors.UserError(
                f"centroid={centroid!r} averages distributions: choose representation distribution or partial"
            )
        self.head, self.label_ids = head, label_ids
        self.k, self.tie_break, self.weights, self.centroid = k, tie_break, weights, centroid
        self.direction, self.representation = direction, representation
        self.kind, self.key_dtype, self.memory_mb, self.on_host = kind, key_dtype, memory_mb, on_host
        self.approximate_recall = approximate_recall
        self.classes_ = np.arange(len(label_ids))

    def fit(self, states: lm.States, y: np.ndarray) -> "KNNPrompting":
        """Keeps the anchors."""
        if self.kind == "dense":
            options: dict[str, Any] = {"representation": self.representation}
        else:
            options = {"released": self.direction == "released"}
        options |= {"key_dtype": self.key_dtype, "memory_mb": self.memory_mb, "on_host": self.on_host}
        return self.use(stores.build(self.kind, self.head, states, y, self.label_ids, **options))

    def use(self, store: stores.Store) -> "KNNPrompting":
        """Takes the anchors of a datastore that there is already."""
        self.datastore = store
        if self.centroid != "none":
            self.datastore = centroids.of(store, self.centroid, self.head, self.representation)
        return self

    def partial_fit(self, states: lm.States, y: np.ndarray) -> "KNNPrompting":
        """Adds anchors to those there are; with centroids there is nothing to add to.

        Raises:
            UserError: the anchors are centroids.
        """
        if self.centroid != "none":
            raise errors.UserError(f"centroid={self.centroid!r} keeps no anchors to add to: fit with all of them")
        self.datastore = self.datastore.append(states, y)
        return self

    @property
    def question(self) -> searching.Question:
        """What is asked of the datastore: the k nearest anchors, or the nearest centroid."""
        k = 1 if self.centroid != "none" else self.k
        return searching.Question(k, self.direction, self.representation, self.approximate_recall)

    def kneighbors(self, states: lm.States) -> kernel.Neighbours:
        """The k nearest anchors of each query (the nearest centroid, where there are centroids)."""
        return self.datastore.search(states, **vars(self.question))

    def predict(self, states: lm.States) -> np.ndarray:
        labels_Qk = self.kneighbors(states).labels_Qk
        return np.asarray(kernel.majority(labels_Qk, num_classes=len(self.classes_), tie_break=self.tie_break))

    def predict_proba(self, states: lm.States) -> np.ndarray:
        """The classes' shares of the vote [Q, C], in which neighbours count equally or by distance."""
        found = self.kneighbors(states)
        weights_Qk = jax.nn.softmax(-found.distances_Qk) if self.weights == "distance" else None
        return np.asarray(kernel.vote_shares(found.labels_Qk, len(self.classes_), weights_Qk))
