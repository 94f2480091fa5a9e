"""Labels that may be wrong, as a table for a person to go through, which `fit --relabel` reads back (`runs.corrections`)."""

import collections
import csv
import io
from collections.abc import Iterator

from knnprompt_jax import tables
from knnprompt_jax.report import neighbourhood
from knnprompt_jax.report.neighbourhood import ClassifiedAnchors
from knnprompt_jax.runs import corrections

FILE = "suggestions.csv"
_COLUMNS = (corrections.ID, "text", corrections.LABEL, corrections.SUGGESTED, "why")


def to_csv(anchors: ClassifiedAnchors) -> str:
    """A line for each anchor whose label may be wrong, most suspicious first; then those of equal texts with several labels, for
    which nothing is suggested."""
    reasons = collections.defaultdict(list)
    suggested = {}
    for at, other, reason in _suspects(anchors):
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


def _suspects(anchors: ClassifiedAnchors) -> Iterator[tuple[int, int, str]]:
    """The place of an anchor, the class that the others say, and how surely."""
    other_N, lead_N, by_neighbours_N = neighbourhood.suspicion(anchors)
    for at in neighbourhood.suspects(lead_N):
        other, near_k = int(other_N[at]), anchors.near_Nk[at]
        told = f"the other anchors give the suggested label a probability of {100 * anchors.shares_NC[at, other]:.0f} %"
        if by_neighbours_N[at]:
            count = int((anchors.y_N[near_k] == other).sum())
            told = f"{count} of the {len(near_k)} nearest anchors have the suggested label"
        yield at, other, told


def _contradictions(anchors: ClassifiedAnchors) -> Iterator[tuple[int, str]]:
    """The places of anchors whose text others have with another label, and which these are."""
    groups = collections.defaultdict(list)
    for at, text in enumerate(anchors.texts):
        groups[neighbourhood.plain(text)].append(at)
    for members in groups.values():
        for at in members:
            others = [other for other in members if anchors.y_N[other] != anchors.y_N[at]]
            if others:
                yield (
                    at,
                    f"anchor {anchors.ids[others[0]]} is the same text, labelled {anchors.names[anchors.y_N[others[0]]]!r}",
                )
