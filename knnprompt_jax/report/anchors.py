"""Anchors as the other anchors classify them: misleading anchors, near-duplicates and labels that may be wrong.

Classes are indices. `near_Nk` holds the nearest other anchors of each anchor, nearest first, as indices 0 … N − 1.
"""

import collections
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from knnprompt_jax import characters, tables
from knnprompt_jax.commands import predictions_file
from knnprompt_jax.report import measures
from knnprompt_jax.runs import corrections

_MIN_LEAD = 0.5  # The lead of another class from which on it is suggested.
_MIN_SUM = 1e-300
_REASONS = ("probability", "neighbours", "same_text")


@dataclasses.dataclass(frozen=True)
class ClassifiedAnchors:
    """N anchors and their leave-one-out predictions.

    Attributes:
        labels: the classes as pages show them; `names` are their labels in the task.
        shares_NC: each class's probability, or its share of the votes of the nearest anchors.
        hidden_NE: the states from which the map is drawn.
        unit: the unit of the distances.
        demonstrations: id, text and label of each demonstration that is no anchor.
        checked: the ids of anchors whose label a person found right.
        user_ids: the columns of the train file that are named like ids, for each anchor; empty if there are none.
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
    user_ids: tuple[Mapping[str, Any], ...] = ()
    demonstrations: tuple[tuple[int, str, str], ...] = ()
    checked: tuple[int, ...] = ()

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


def suggestions(anchors: ClassifiedAnchors, count: int) -> pd.DataFrame:
    """Return a table of labels to check, for a person to review and `fit --corrections` to apply.

    The `count` least probable labels come first. Then come anchors whose text also occurs with another label. Labels
    that a person found right are left out. If no other label is suggested for a label that differs from that of more
    anchors only in its form, that one is.
    """
    found = ranked(anchors)
    twins = _twins(anchors)
    checked = set(anchors.checked)
    reasons = collections.defaultdict(list)
    for index, reason in _contradictions(anchors):
        reasons[index].append(reason)
    unchecked = [index for index in found.index if anchors.ids[index] not in checked]
    listed = [*unchecked[:count], *(index for index in unchecked[count:] if index in reasons)]
    user_columns = tuple(dict.fromkeys(name for ids in anchors.user_ids for name in ids))
    num_near = anchors.near_Nk.shape[-1]
    rows = []
    for index in listed:
        user_ids = [str(anchors.user_ids[index].get(name, "")) for name in user_columns]
        label = anchors.label(index)
        suggested = anchors.names[found.suggested[index]] if found.suggested[index] >= 0 else twins.get(label, "")
        texts = [*user_ids, anchors.texts[index], label, suggested]
        neighbours = f"{found.differing[index]} of {num_near} differ"
        numbers = ["", f"{found.probability[index]:.3f}", neighbours]
        rows.append(
            [anchors.ids[index], *map(tables.to_cell, texts), *numbers, tables.to_cell("; ".join(reasons[index]))]
        )
    columns = [corrections.TEXT, corrections.LABEL, corrections.SUGGESTED, corrections.CHECKED, *_REASONS]
    kept = predictions_file.renamed(user_columns, (corrections.ID, *columns))
    return pd.DataFrame(rows, columns=[corrections.ID, *map(tables.to_cell, kept), *columns], dtype=object)


def _twins(anchors: ClassifiedAnchors) -> dict[str, str]:
    """Return the label of the most anchors for each label that differs from it only in its form."""
    groups = collections.defaultdict(list)
    for label, _ in collections.Counter(map(anchors.label, range(len(anchors.y_N)))).most_common():
        groups[characters.likeness(label)].append(label)
    return {label: first for first, *others in groups.values() for label in others}


def _contradictions(anchors: ClassifiedAnchors) -> Iterator[tuple[int, str]]:
    """Yield each anchor whose text also occurs with another label, and where it occurs."""
    same_text = collections.defaultdict(list)
    for index, text in enumerate(anchors.texts):
        same_text[characters.plain(text)].append(index)
    for members in same_text.values():
        for index in members:
            differing = [member for member in members if anchors.y_N[member] != anchors.y_N[index]]
            if differing:
                yield index, f"anchor {anchors.ids[differing[0]]}: {anchors.label(differing[0])!r}"
    for number, text, label in anchors.demonstrations:
        for index in same_text.get(characters.plain(text), ()):
            if anchors.label(index) != label:
                yield index, f"demonstration {number}: {label!r}"
