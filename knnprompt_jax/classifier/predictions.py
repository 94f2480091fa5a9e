"""What the neighbours of texts say: labels, probabilities, distances and the anchors' ids."""

import dataclasses

import numpy as np

from knnprompt_jax.store import kernel


@dataclasses.dataclass(frozen=True)
class Predictions:
    """What is said of Q texts.

    Attributes:
      labels: [Q], of y's type.
      probabilities: the classes' shares [Q, C] of the vote, in the order of `classes_`.
      distances: of the neighbours [Q, k], nearest first, in the unit of the classifier's distance.
      ids: of the neighbours [Q, k], as in `anchors_`.
      decided_by_rounding: whether a label [Q] is one that another machine, dtype or arrangement of the prompts may give otherwise
        (`classifier.rounding`); None where the distance does not say.
    """

    labels: np.ndarray
    probabilities: np.ndarray
    distances: np.ndarray
    ids: np.ndarray
    decided_by_rounding: np.ndarray | None = None


def vote(neighbours: kernel.Neighbours, num_classes: int, tie_break: str) -> tuple[np.ndarray, np.ndarray]:
    """The class [Q] with most neighbours, and all classes' shares [Q, C] of the vote, in class order."""
    majority_Q = kernel.majority(neighbours.labels_Qk, num_classes=num_classes, tie_break=tie_break)
    return np.asarray(majority_Q), np.asarray(kernel.vote_shares(neighbours.labels_Qk, num_classes))


def of(
    neighbours: kernel.Neighbours,
    ids_N: np.ndarray,
    labels_C: np.ndarray,
    tie_break: str,
    by_rounding_Q: np.ndarray | None = None,
) -> Predictions:
    """The predictions of neighbours in a store; `ids_N` are its anchors', `labels_C` the labels in class order."""
    classes_Q, shares_QC = vote(neighbours, len(labels_C), tie_break)
    return Predictions(
        labels=labels_C[classes_Q],
        probabilities=shares_QC[:, order(labels_C)],
        distances=np.asarray(neighbours.distances_Qk),
        ids=ids_N[np.asarray(neighbours.indices_Qk)],
        decided_by_rounding=by_rounding_Q,
    )


def order(labels_C: np.ndarray) -> np.ndarray:
    """The classes [C] in the order of their labels, which is scikit-learn's."""
    return np.argsort(labels_C, kind="stable")
