"""What the neighbours of texts say: labels, probabilities, distances and the anchors' numbers."""

import dataclasses

import numpy as np

from knnprompt_jax.store import kernel, stores


@dataclasses.dataclass(frozen=True)
class Answers:
    """What is said of Q texts.

    Attributes:
      labels: [Q], of y's type.
      probabilities: the classes' shares [Q, C] of the vote, in the order of `classes_`.
      distances: of the neighbours [Q, k], nearest first; in nats, Euclidean for the representation "hidden".
      ids: numbers [Q, k] of the neighbours in `anchors_`.
    """

    labels: np.ndarray
    probabilities: np.ndarray
    distances: np.ndarray
    ids: np.ndarray


def of(found: kernel.Neighbours, store: stores.Store, labels_C: np.ndarray, tie_break: str) -> Answers:
    """The answers of neighbours found in a store; `labels_C` are the labels in class order."""
    majority_Q = kernel.majority(found.labels_Qk, num_classes=len(labels_C), tie_break=tie_break)
    return Answers(
        labels=labels_C[np.asarray(majority_Q)],
        probabilities=np.asarray(kernel.vote_shares(found.labels_Qk, len(labels_C)))[:, order(labels_C)],
        distances=np.asarray(found.distances_Qk),
        ids=store.ids_N[np.asarray(found.indices_Qk)],
    )


def order(labels_C: np.ndarray) -> np.ndarray:
    """The classes [C] in the order of their labels, which is scikit-learn's."""
    return np.argsort(labels_C, kind="stable")
