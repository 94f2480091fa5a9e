"""What the neighbours of texts say: labels, probabilities, distances and the anchors' ids."""

import dataclasses
import numbers

import numpy as np

from knnprompt_jax import errors
from knnprompt_jax.store import kernel


@dataclasses.dataclass(frozen=True)
class Predictions:
    """What is said of Q texts.

    Attributes:
      labels: [Q], of y's type; None where the classifier abstains.
      probabilities: of the classes [Q, C], in the order of `classes_`; for a plain vote their shares of it.
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

    def abstaining(self, least: float) -> "Predictions":
        """The same with None for each label of a lower probability than `least`; raises UserError unless that is 0 to 1."""
        if not isinstance(least, numbers.Real) or not 0 <= least <= 1:
            raise errors.UserError(f"abstain={least!r}: a probability is needed, from 0 to 1")
        if not least:
            return self
        unsure_Q = self.probabilities.max(-1, initial=0) < least
        labels = self.labels.astype(object)
        labels[unsure_Q] = None
        return dataclasses.replace(self, labels=labels)


def vote(neighbours: kernel.Neighbours, num_classes: int, tie_break: str) -> tuple[np.ndarray, np.ndarray]:
    """The class [Q] with most neighbours, and all classes' shares [Q, C] of the vote, in class order."""
    majority_Q = kernel.majority(neighbours.labels_Qk, num_classes=num_classes, tie_break=tie_break)
    return np.asarray(majority_Q), np.asarray(kernel.vote_shares(neighbours.labels_Qk, num_classes))


def of(
    neighbours: kernel.Neighbours,
    ids_N: np.ndarray,
    labels_C: np.ndarray,
    classes_Q: np.ndarray,
    p_QC: np.ndarray,
    by_rounding_Q: np.ndarray | None = None,
) -> Predictions:
    """Predicted classes and their probabilities, with the neighbours in a store that has anchors of these ids.

    `labels_C` are the labels in class order.
    """
    return Predictions(
        labels=labels_C[classes_Q],
        probabilities=p_QC[:, order(labels_C)],
        distances=np.asarray(neighbours.distances_Qk),
        ids=ids_N[np.asarray(neighbours.indices_Qk)],
        decided_by_rounding=by_rounding_Q,
    )


def order(labels_C: np.ndarray) -> np.ndarray:
    """The classes [C] in the order of their labels, which is scikit-learn's."""
    return np.argsort(labels_C, kind="stable")
