"""Classes scored by the anchors nearest to a text: votes that may count less with the distance, smoothed by how common classes are."""

import numpy as np

WEIGHTS = ("uniform", "distance")


def scores(
    classes_Qk: np.ndarray, distances_Qk: np.ndarray, shares_C: np.ndarray, bandwidth: float = 0.0
) -> np.ndarray:
    """The logarithm of how many times its share of the anchors each class has of the vote [Q, C], one more vote being cast by all anchors.

    A neighbour's vote counts exp(−(d − d₁) / bandwidth), with d₁ the distance of the nearest, or 1 where `bandwidth` is 0.

    Args:
      classes_Qk: of the neighbours, nearest first.
      distances_Qk: theirs; infinite where there are fewer than k.
      shares_C: the classes' shares of the anchors, each above 0.
    """
    present_Qk = np.isfinite(distances_Qk)
    further_Qk = np.where(present_Qk, distances_Qk - distances_Qk[:, :1], 0)
    weights_Qk = present_Qk * (np.exp(-further_Qk / bandwidth) if bandwidth else 1.0)
    votes_QC = np.zeros((len(classes_Qk), len(shares_C)))
    np.add.at(votes_QC, (np.arange(len(classes_Qk))[:, None], classes_Qk), weights_Qk)
    return np.log((votes_QC / shares_C + 1) / (votes_QC.sum(-1, keepdims=True) + 1))
