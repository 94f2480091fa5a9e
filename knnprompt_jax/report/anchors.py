"""Anchors as the other anchors classify them: misleading anchors, near-duplicates and labels that may be wrong.

Classes are indices. `near_Nk` holds the nearest other anchors of each anchor, nearest first, as indices 0 … N − 1.
"""

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from knnprompt_jax import tables
from knnprompt_jax.prediction import writing
from knnprompt_jax.report import measures
from knnprompt_jax.runs import changing
from knnprompt_jax.tasks import defects


@dataclasses.dataclass(frozen=True)
class ClassifiedAnchors:
    """N anchors and their leave-one-out predictions.

    Attributes:
      labels: the classes as pages show them; `names` are their labels in the task.
      shares_NC: each class's probability if `has_probabilities`, else its share of the votes of the nearest anchors.
      hidden_NE: the states that place the anchors on a map.
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


def suspects(anchors: ClassifiedAnchors) -> pd.DataFrame:
    """Return the anchors whose label another class leads by more than half, the largest lead first; the index is the anchor.

    The lead is a difference of shares of the nearest anchors or, if the classifier gives probabilities and they lead by
    more, of probabilities. The columns are the leading class `suggested`, its `lead` and the reason, `why`.
    """
    near_labels_Nk, classes = anchors.y_N[anchors.near_Nk], range(len(anchors.labels))
    votes_NC = np.stack([(near_labels_Nk == label).sum(1) for label in classes], axis=1)
    rows = []
    for label, votes_C, shares_C in zip(anchors.y_N, votes_NC, anchors.shares_NC, strict=True):
        count = votes_C.sum()
        suggestion, lead = int(votes_C.argmax()), float(votes_C.max() / count - votes_C[label] / count)
        why = f"{votes_C[suggestion]} of {count} nearest anchors"
        if anchors.has_probabilities and shares_C.max() - shares_C[label] > lead:
            suggestion, lead = int(shares_C.argmax()), float(shares_C.max() - shares_C[label])
            why = f"probability {100 * shares_C[suggestion]:.0f} %"
        rows.append((suggestion, lead, why))
    found = pd.DataFrame(rows, columns=["suggested", "lead", "why"])
    return found[found.lead > 0.5].sort_values("lead", ascending=False, kind="stable")


def suggestions(anchors: ClassifiedAnchors) -> pd.DataFrame:
    """Return a table of labels that may be wrong, for a person to review and `fit --relabel` to read (`runs.changing`).

    The most suspicious anchors come first. Then come those whose text also occurs with another label, without a suggestion.
    """
    suspected = suspects(anchors)
    reasons = collections.defaultdict(list, {at: [why] for at, why in suspected.why.items()})
    suggested = {at: anchors.names[label] for at, label in suspected.suggested.items()}
    same_text = collections.defaultdict(list)
    for at, text in enumerate(anchors.texts):
        same_text[defects.plain(text)].append(at)
    for members in same_text.values():
        for at in members:
            if others := [other for other in members if anchors.y_N[other] != anchors.y_N[at]]:
                label = anchors.names[anchors.y_N[others[0]]]
                reasons[at].append(f"same text as anchor {anchors.ids[others[0]]}, {label!r}")
    for number, text, label in anchors.demonstrations:
        for at in same_text.get(defects.plain(text), ()):
            if anchors.names[anchors.y_N[at]] != label:
                reasons[at].append(f"same text as demonstration {number}, {label!r}")
    rows, names = [], tuple(dict.fromkeys(name for ids in anchors.user_ids for name in ids))
    for at, why in reasons.items():
        own = [str(anchors.user_ids[at].get(name, "")) for name in names]
        cells = anchors.texts[at], anchors.names[anchors.y_N[at]], suggested.get(at, ""), "; ".join(why)
        rows.append([anchors.ids[at], *map(tables.to_cell, [*own, *cells])])
    columns = [changing.TEXT, changing.LABEL, changing.SUGGESTED, "why"]
    kept = writing.renamed(names, (changing.ID, *columns))
    return pd.DataFrame(rows, columns=[changing.ID, *map(tables.to_cell, kept), *columns], dtype=object)
