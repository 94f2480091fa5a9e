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
from knnprompt_jax.prediction import writing
from knnprompt_jax.report import measures
from knnprompt_jax.runs import corrections

_MIN_LEAD = 0.5  # The lead of another class from which on a label is suspicious.


@dataclasses.dataclass(frozen=True)
class ClassifiedAnchors:
    """N anchors and their leave-one-out predictions.

    Attributes:
        labels: the classes as pages show them; `names` are their labels in the task.
        shares_NC: each class's probability if `has_probabilities`, else its share of the votes of the nearest anchors.
        hidden_NE: the states from which the map is drawn.
        unit: the unit of the distances.
        demonstrations: id, text and label of each demonstration.
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
    has_probabilities: bool = False
    user_ids: tuple[Mapping[str, Any], ...] = ()
    demonstrations: tuple[tuple[int, str, str], ...] = ()

    @property
    def measured(self) -> measures.Measures:
        """The measures of the leave-one-out predictions."""
        return measures.Measures(self.labels, self.y_N, self.predicted_N, self.shares_NC)

    def label(self, index: int) -> str:
        """Return the label of an anchor in the task."""
        return self.names[self.y_N[index]]


def suspects(anchors: ClassifiedAnchors) -> pd.DataFrame:
    """Return the anchors whose label another class leads by more than half, the largest lead first.

    The index is the anchor's. The lead is a difference of shares of the nearest anchors or, if the classifier gives
    probabilities and they lead by more, of probabilities. The columns are the leading class `suggested`, its `lead`
    and the reason, `why`.
    """
    num_classes = len(anchors.labels)
    rows = []
    for label, near_k, shares_C in zip(anchors.y_N, anchors.near_Nk, anchors.shares_NC, strict=True):
        votes_C = np.bincount(anchors.y_N[near_k], minlength=num_classes)
        suggested = int(votes_C.argmax())
        lead = float(votes_C[suggested] / len(near_k) - votes_C[label] / len(near_k))
        why = f"{votes_C[suggested]} of {len(near_k)} nearest anchors"
        if anchors.has_probabilities and shares_C.max() - shares_C[label] > lead:
            suggested = int(shares_C.argmax())
            lead = float(shares_C[suggested] - shares_C[label])
            why = f"probability {100 * shares_C[suggested]:.0f} %"
        rows.append((suggested, lead, why))
    found = pd.DataFrame(rows, columns=["suggested", "lead", "why"])
    return found[found.lead > _MIN_LEAD].sort_values("lead", ascending=False, kind="stable")


def suggestions(anchors: ClassifiedAnchors) -> pd.DataFrame:
    """Return a table of labels that may be wrong, for a person to review and `fit --corrections` to apply.

    The most suspicious anchors come first. Then come those whose text also occurs with another label; these have no
    suggestion.
    """
    suspected = suspects(anchors)
    reasons = collections.defaultdict(list, {index: [why] for index, why in suspected.why.items()})
    for index, reason in _contradictions(anchors):
        reasons[index].append(reason)
    user_columns = tuple(dict.fromkeys(name for ids in anchors.user_ids for name in ids))
    rows = []
    for index, why in reasons.items():
        user_ids = [str(anchors.user_ids[index].get(name, "")) for name in user_columns]
        suggested = anchors.names[suspected.suggested[index]] if index in suspected.index else ""
        cells = [*user_ids, anchors.texts[index], anchors.label(index), suggested, "; ".join(why)]
        rows.append([anchors.ids[index], *map(tables.to_cell, cells)])
    columns = [corrections.TEXT, corrections.LABEL, corrections.SUGGESTED, "why"]
    kept = writing.renamed(user_columns, (corrections.ID, *columns))
    return pd.DataFrame(rows, columns=[corrections.ID, *map(tables.to_cell, kept), *columns], dtype=object)


def _contradictions(anchors: ClassifiedAnchors) -> Iterator[tuple[int, str]]:
    """Yield each anchor whose text also occurs with another label, and where it occurs."""
    same_text = collections.defaultdict(list)
    for index, text in enumerate(anchors.texts):
        same_text[characters.plain(text)].append(index)
    for members in same_text.values():
        for index in members:
            others = [other for other in members if anchors.y_N[other] != anchors.y_N[index]]
            if others:
                yield index, f"same text as anchor {anchors.ids[others[0]]}, {anchors.label(others[0])!r}"
    for number, text, label in anchors.demonstrations:
        for index in same_text.get(characters.plain(text), ()):
            if anchors.label(index) != label:
                yield index, f"same text as demonstration {number}, {label!r}"
