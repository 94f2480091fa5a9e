"""Anchors as the other anchors classify them: misleading anchors, near-duplicates and labels that may be wrong.

Classes are indices. `near_Nk` holds the nearest other anchors of each anchor, nearest first, as indices 0 … N − 1.
"""

import dataclasses

import numpy as np
import pandas as pd

from knnprompt_jax.report import measures

_MIN_LEAD = 0.5  # The lead of another class from which on it is suggested.
_MIN_SUM = 1e-300


@dataclasses.dataclass(frozen=True)
class ClassifiedAnchors:
    """N anchors and their leave-one-out predictions.

    Attributes:
        labels: the classes as pages show them; `names` are their labels in the task.
        shares_NC: each class's probability, or its share of the votes of the nearest anchors.
        hidden_NE: the states from which the map is drawn.
        unit: the unit of the distances.
    """

    labels: tuple[str, ...]
    names: tuple[str, ...]
    ids: tuple[int, ...]
    texts: tuple[str, ...]
    y_N: np.ndarray
    near_Nk: np.ndarray
    distances_Nk: np.ndarray
    predicted_N: np.ndarray
    shares_NC: np.ndarray
    hidden_NE: np.ndarray
    unit: str

    @property
    def measured(self) -> measures.Measures:
        """The measures of the leave-one-out predictions."""
        return measures.Measures(self.labels, self.y_N, self.predicted_N, self.shares_NC)

    def label(self, index: int) -> str:
        """Return the label of an anchor in the task."""
        return self.names[self.y_N[index]]


def ranked(anchors: ClassifiedAnchors) -> pd.DataFrame:
    """Return all anchors, the least probable label first; the index is the anchor's.

    The columns are the class `suggested`, or -1, the label's `probability`, and how many of the nearest anchors have
    another label, `differing`. A class is suggested if its probability leads the label's by more than half.

    Probabilities are p / √share, scaled to a sum of 1: halfway between the classes' shares of the anchors and equal
    shares. With the anchors' shares, right labels of a rare class would come before wrong labels of a common one;
    confident learning avoids this by a threshold for each class (Northcutt et al., 2021). With equal shares, a class of
    few anchors, whose probabilities are the least reliable, would hide its wrong labels.
    """
    rows_N = np.arange(len(anchors.y_N))
    shares_C = np.bincount(anchors.y_N, minlength=len(anchors.labels)) / len(anchors.y_N)
    balanced_NC = np.divide(
        anchors.shares_NC, np.sqrt(shares_C), out=np.zeros(anchors.shares_NC.shape), where=shares_C > 0
    )
    balanced_NC /= np.maximum(balanced_NC.sum(-1, keepdims=True), _MIN_SUM)
    own_N = balanced_NC[rows_N, anchors.y_N]
    best_N = balanced_NC.argmax(-1)
    leads_N = balanced_NC[rows_N, best_N] - own_N > _MIN_LEAD
    differing_N = np.sum(anchors.y_N[anchors.near_Nk] != anchors.y_N[:, None], -1)
    found = pd.DataFrame(
        {"suggested": np.where(leads_N, best_N, -1), "probability": own_N, "differing": differing_N}, rows_N
    )
    return found.sort_values("probability", kind="stable")
