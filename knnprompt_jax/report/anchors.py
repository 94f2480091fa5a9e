"""Anchors as the other anchors classify them: misleading anchors, near-duplicates and labels that may be wrong.

Classes are indices. `near_Nk` holds the nearest other anchors of each anchor, nearest first, as indices 0 … N − 1.
"""

import collections
import csv
import dataclasses
import io
import unicodedata
from collections.abc import Iterator

import numpy as np
from sklearn import metrics

from knnprompt_jax import tables
from knnprompt_jax.runs import corrections

_COLUMNS = (corrections.ID, "text", corrections.LABEL, corrections.SUGGESTED, "why")


@dataclasses.dataclass(frozen=True)
class ClassifiedAnchors:
    """N anchors and their leave-one-out predictions.

    Attributes:
      labels: the classes as pages show them; `names` are their labels in the task.
      shares_NC: each class's probability if `has_probabilities`, else its share of the votes of the `k` nearest anchors.
      hidden_NE: the states that place the anchors on a map.
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
    k: int
    unit: str
    has_probabilities: bool = False

    @property
    def accuracy(self) -> float:
        return float(np.mean(self.predicted_N == self.y_N))

    @property
    def confusion_CC(self) -> np.ndarray:
        """Numbers of anchors by label (rows) and prediction (columns)."""
        return metrics.confusion_matrix(self.y_N, self.predicted_N, labels=range(len(self.labels)))


def votes(y_N: np.ndarray, near_Nk: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how often each anchor [N] votes for the right class of another anchor, and for a wrong one."""
    is_right_Nk = y_N[near_Nk] == y_N[:, None]
    right_N = np.bincount(near_Nk[is_right_Nk], minlength=len(y_N))
    return right_N, np.bincount(near_Nk.ravel(), minlength=len(y_N)) - right_N


def suspicion(anchors: ClassifiedAnchors) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the class [N] that leads over each anchor's label, its lead [N], and whether it leads among the neighbours [N].

    The lead is a difference of shares of the nearest anchors or, if the classifier gives probabilities and they lead by
    more, of probabilities.
    """
    near_labels_Nk, classes = anchors.y_N[anchors.near_Nk], range(len(anchors.labels))
    shares_SNC = [np.stack([(near_labels_Nk == label).mean(1) for label in classes], axis=1)]
    if anchors.has_probabilities:
        shares_SNC.append(anchors.shares_NC)
    rows_N = np.arange(len(anchors.y_N))
    other_SN = np.argmax(shares_SNC, -1)
    lead_SN = np.stack([shares_NC.max(1) - shares_NC[rows_N, anchors.y_N] for shares_NC in shares_SNC])
    best_N = lead_SN.argmax(0)
    return other_SN[best_N, rows_N], lead_SN[best_N, rows_N], best_N == 0


def suspects(lead_N: np.ndarray) -> list[int]:
    """Return the anchors whose label another class leads by more than half, the largest lead first."""
    return [at for at in np.argsort(-lead_N, kind="stable").tolist() if lead_N[at] > 0.5]


def normalized(text: str) -> str:
    """Return the text without differences of case, blanks and Unicode forms."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def pairs(anchors: ClassifiedAnchors) -> list[tuple[int, int, float]]:
    """Return pairs (i, j), i < j, of anchors and their nearest anchor with their distance, nearest first.

    Pairs with equal texts come first: their distance is smaller than rounding shows.
    """
    nearest: dict[tuple[int, int], float] = {}
    first_N2 = zip(anchors.near_Nk[:, 0].tolist(), anchors.distances_Nk[:, 0].tolist(), strict=True)
    for anchor, (other, distance) in enumerate(first_N2):
        pair = min(anchor, other), max(anchor, other)
        nearest[pair] = min(distance, nearest.get(pair, distance))
    found = [(*pair, distance) for pair, distance in nearest.items()]
    return sorted(found, key=lambda pair: (not equal_texts(anchors, *pair[:2]), pair[2]))


def equal_texts(anchors: ClassifiedAnchors, first: int, second: int) -> bool:
    """Return whether two anchors' texts differ only in case, blanks and Unicode forms."""
    return normalized(anchors.texts[first]) == normalized(anchors.texts[second])


def suggestions_csv(anchors: ClassifiedAnchors) -> str:
    """Return a table of labels that may be wrong, for a person to review and `fit --relabel` to read (`runs.corrections`).

    The most suspicious anchors come first. Anchors that have equal texts but different labels follow without a suggestion.
    """
    reasons = collections.defaultdict(list)
    suggested = {}
    for at, other, reason in _suspicions(anchors):
        suggested[at] = anchors.names[other]
        reasons[at].append(reason)
    for at, contradiction in _contradictions(anchors):
        reasons[at].append(contradiction)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for at, why in reasons.items():
        cells = anchors.texts[at], anchors.names[anchors.y_N[at]], suggested.get(at, ""), "; ".join(why)
        writer.writerow([anchors.ids[at], *map(tables.to_cell, cells)])
    return text.getvalue()


def _suspicions(anchors: ClassifiedAnchors) -> Iterator[tuple[int, int, str]]:
    """Yield each suspect anchor, the suggested class and the reason."""
    other_N, lead_N, by_neighbours_N = suspicion(anchors)
    for at in suspects(lead_N):
        other, near_k = int(other_N[at]), anchors.near_Nk[at]
        if by_neighbours_N[at]:
            count = int((anchors.y_N[near_k] == other).sum())
            yield at, other, f"{count} of the {len(near_k)} nearest anchors have the suggested label"
        else:
            percent = 100 * anchors.shares_NC[at, other]
            yield at, other, f"the other anchors give the suggested label a probability of {percent:.0f} %"


def _contradictions(anchors: ClassifiedAnchors) -> Iterator[tuple[int, str]]:
    """Yield each anchor whose text another anchor has with another label, and the reason."""
    by_text = collections.defaultdict(list)
    for at, text in enumerate(anchors.texts):
        by_text[normalized(text)].append(at)
    for members in by_text.values():
        for at in members:
            if others := [other for other in members if anchors.y_N[other] != anchors.y_N[at]]:
                label = anchors.names[anchors.y_N[others[0]]]
                yield at, f"anchor {anchors.ids[others[0]]} is the same text, labelled {label!r}"
