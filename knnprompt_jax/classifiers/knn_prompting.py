"""kNN Prompting: the label of the anchors about whose prompts the model says the same (Xu et al., ICLR 2023, Section 3)."""

from collections.abc import Sequence

import jax
import numpy as np

from knnprompt_jax import errors, knn, lm
from knnprompt_jax.classifiers import base
from knnprompt_jax.datastore import dense, representations

DIRECTIONS = ("forward", "released")
TIE_BREAKS = ("lowest", "nearest")
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
        head_VE: jax.Array,
        label_ids: Sequence[int],
        *,
        k: int = K,
        direction: str = "forward",
        representation: str = "distribution",
        tie_break: str = "lowest",
        centroid: str = "none",
    ):
        """`direction` is "forward" (KL(p‖k_i), Eq. 5) or "released" (KL(k_i‖p)); `representation` one of `REPRESENTATIONS`.

        With a `centroid` ("arithmetic" or "geometric") each class has one anchor and the nearest decides.

        Raises:
            UserError: a value outside its choices.
        """
        for name, value, choices in (
            ("direction", direction, DIRECTIONS),
            ("representation", representation, representations.REPRESENTATIONS),
            ("tie_break", tie_break, TIE_BREAKS),
            ("centroid", centroid, dense.CENTROIDS),
        ):
            if value not in choices:
                raise errors.UserError(f"{name}={value!r}: choose from {', '.join(choices)}")
        if centroid != "none" and representation in ("hidden", "partial_raw"):
            raise errors.UserError(f"centroid={centroid!r} averages distributions: choose representation distribution or partial")
        self.head_VE, self.label_ids = head_VE, label_ids
        self.k, self.tie_break, self.representation, self.centroid = k, tie_break, representation, centroid
        self.distance = "l2" if representation == "hidden" else direction
        self.classes_ = np.arange(len(label_ids))

    def fit(self, states: lm.States, y: np.ndarray) -> "KNNPrompting":
        """Keeps the anchors."""
        self.datastore = dense.Datastore(self._represent(states), jax.numpy.asarray(y, jax.numpy.int32))
        if self.centroid != "none":
            self.datastore = self.datastore.centroids(self.centroid)
        return self

    def kneighbors(self, states: lm.States) -> knn.Neighbours:
        """The k nearest anchors of each query (the nearest centroid, where there are centroids)."""
        return self.datastore.search(self._represent(states), 1 if self.centroid != "none" else self.k, self.distance)

    def predict(self, states: lm.States) -> np.ndarray:
        labels_Qk = self.kneighbors(states).labels_Qk
        return np.asarray(knn.majority(labels_Qk, num_classes=len(self.classes_), tie_break=self.tie_break))

    def predict_proba(self, states: lm.States) -> np.ndarray:
        """The classes' shares of the vote."""
        return np.asarray(knn.vote_shares(self.kneighbors(states).labels_Qk, len(self.classes_)))

    def _represent(self, states: lm.States) -> jax.Array:
        return representations.represent(self.head_VE, states, self.representation, self.label_ids)
