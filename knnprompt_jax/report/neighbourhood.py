"""What the neighbours of anchors say about the anchors: each is looked at as the others see it, itself left out.

Classes are indices; `near_Nk` holds the nearest other anchors of each, nearest first, by their places 0 … N − 1.
"""

import dataclasses
import unicodedata

import numpy as np
from sklearn import metrics


@dataclasses.dataclass(frozen=True)
class ClassifiedAnchors:
    """N anchors as the others see them: `predicted_N` with `shares_NC`, which are the classes' probabilities where `has_probabilities`, and
    otherwise their shares of the vote of the `k` nearest of `near_Nk`.

    `labels` are what pages call the classes, `names` their labels in the task; `hidden_NE` are the states by which a map places
    the anchors, `unit` that of the distances.
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
    k: int
    unit: str
    has_probabilities: bool = False

    @property
    def accuracy(self) -> float:
        return float(np.mean(self.predicted_N == self.y_N))

    @property
    def confusion_CC(self) -> np.ndarray:
        """How many anchors of each class, in rows, are taken for each class, in columns."""
        return metrics.confusion_matrix(self.y_N, self.predicted_N, labels=range(len(self.labels)))


@dataclasses.dataclass(frozen=True)
class Bin:
    """Predictions of about the same confidence, and the share of them that is right."""

    confidence: float
    accuracy: float
    count: int


def calibration(y_N: np.ndarray, shares_NC: np.ndarray, predicted_N: np.ndarray) -> list[Bin]:
    """Accuracy by the share of the vote that the predicted class has, in ten bins of equal width without the empty ones."""
    confidence_N, right_N = shares_NC[np.arange(len(y_N)), predicted_N], predicted_N == y_N
    bins_N = np.minimum((confidence_N * 10).astype(int), 9)
    members = [bins_N == index for index in np.unique(bins_N)]
    return [Bin(float(confidence_N[in_N].mean()), float(right_N[in_N].mean()), int(in_N.sum())) for in_N in members]


def calibration_error(bins: list[Bin]) -> float:
    """The expected calibration error: the mean distance of confidence and accuracy over predictions."""
    total = sum(each.count for each in bins)
    return sum(each.count * abs(each.confidence - each.accuracy) for each in bins) / total


def votes(y_N: np.ndarray, near_Nk: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How often each anchor [N] votes for the right class of another anchor, and how often for a wrong one."""
    right_Nk = y_N[near_Nk] == y_N[:, None]
    right_N, all_N = (np.bincount(near_Nk[chosen], minlength=len(y_N)) for chosen in (right_Nk, np.ones_like(right_Nk)))
    return right_N, all_N - right_N


def suspicion(anchors: ClassifiedAnchors) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The class [N] that leads over each anchor's label, by how much [N], and whether among the nearest anchors [N].

    It leads by its share of the nearest anchors, or by its probability where the classifier gives one: by the larger of the two leads.
    """
    counts_NC = np.stack(
        [(anchors.y_N[anchors.near_Nk] == label).sum(1) for label in range(len(anchors.labels))], axis=1
    )
    said_SNC = [counts_NC / anchors.near_Nk.shape[1]]
    if anchors.has_probabilities:
        said_SNC.append(anchors.shares_NC)
    rows_N = np.arange(len(anchors.y_N))
    other_SN = np.argmax(said_SNC, -1)
    lead_SN = np.stack([said_NC.max(1) - said_NC[rows_N, anchors.y_N] for said_NC in said_SNC])
    best_N = lead_SN.argmax(0)
    return other_SN[best_N, rows_N], lead_SN[best_N, rows_N], best_N == 0


def suspects(lead_N: np.ndarray) -> list[int]:
    """The anchors over whose label another one leads by more than half, by the largest lead first."""
    return [at for at in np.argsort(-lead_N, kind="stable").tolist() if lead_N[at] > 0.5]


def plain(text: str) -> str:
    """The text without what equal texts may differ in: case, blanks and the forms of characters."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def pairs(near_Nk: np.ndarray, distances_Nk: np.ndarray) -> list[tuple[int, int, float]]:
    """Pairs (i, j), i < j, where one is the other's nearest, each with the lesser of their distances; nearest pairs first."""
    nearest: dict[tuple[int, int], float] = {}
    for anchor, (other, distance) in enumerate(zip(near_Nk[:, 0].tolist(), distances_Nk[:, 0].tolist(), strict=True)):
        pair = min(anchor, other), max(anchor, other)
        nearest[pair] = min(distance, nearest.get(pair, distance))
    return sorted(((*pair, distance) for pair, distance in nearest.items()), key=lambda item: item[2])
