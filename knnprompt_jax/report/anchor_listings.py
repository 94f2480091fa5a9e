"""The listings of a saved classifier's page: classes, and the anchors that deserve a second look."""

import numpy as np

from knnprompt_jax.report import neighbourhood
from knnprompt_jax.report.neighbourhood import ClassifiedAnchors
from knnprompt_jax.report.sections import Listing

_MOST = 20  # Rows of a listing.
_ANCHOR = ("Id", "Text", "Label")


def classes(anchors: ClassifiedAnchors) -> Listing:
    """How many anchors each class has, and how many of them the others recognise."""
    counts_CC = anchors.confusion_CC
    counted = zip(anchors.labels, counts_CC.sum(1), counts_CC.diagonal(), counts_CC.sum(0), strict=True)
    rows = tuple(
        (label, f"{members:,}", _share(hit, members), _share(hit, taken)) for label, members, hit, taken in counted
    )
    return Listing(
        "Recall: of the class's anchors; precision: of those taken for it.",
        ("Label", "Anchors", "Recall", "Precision"),
        rows,
    )


def misleading(anchors: ClassifiedAnchors) -> Listing:
    """The anchors with the most votes for a wrong class."""
    right_N, wrong_N = neighbourhood.votes(anchors.y_N, anchors.near_Nk[:, : anchors.k])
    order = [at for at in np.argsort(-wrong_N, kind="stable").tolist() if wrong_N[at]][:_MOST]
    rows = tuple((*_read(anchors, at), f"{wrong_N[at]}", f"{right_N[at]}") for at in order)
    caption = f"Votes that an anchor gives others when it is among their {anchors.k} nearest."
    return Listing(caption, (*_ANCHOR, "Wrong votes", "Right votes"), rows)


def suspects(anchors: ClassifiedAnchors) -> Listing:
    """The anchors of which the others say another label."""
    other_N, lead_N, _ = neighbourhood.suspicion(anchors)
    order = neighbourhood.suspects(lead_N)[:_MOST]
    rows = tuple((*_read(anchors, at), anchors.labels[other_N[at]], f"{100 * lead_N[at]:.0f} %") for at in order)
    caption = f"Another label leads by more than half among the {anchors.near_Nk.shape[1]} nearest anchors"
    caption += ", or in probability." if anchors.has_probabilities else "."
    return Listing(caption, (*_ANCHOR, "The others say", "Lead"), rows)


def duplicates(anchors: ClassifiedAnchors) -> Listing:
    """The nearest pairs: equal texts, and texts of which the model says almost the same."""
    pairs = neighbourhood.pairs(anchors.near_Nk, anchors.distances_Nk)
    # Equal texts are nearer than rounding shows.
    pairs.sort(key=lambda pair: (not _equal(anchors, *pair[:2]), pair[2]))
    rows = tuple(
        (*_read(anchors, first), *_read(anchors, second))
        + ("equal texts" if _equal(anchors, first, second) else f"{max(0.0, distance):.2g} {anchors.unit}",)
        for first, second, distance in pairs[:_MOST]
    )
    return Listing("The pairs with the least distance; equal texts first.", (*_ANCHOR, *_ANCHOR, "Distance"), rows)


def _equal(anchors: ClassifiedAnchors, first: int, second: int) -> bool:
    """Whether two texts differ in nothing but case, blanks and the forms of characters."""
    return neighbourhood.plain(anchors.texts[first]) == neighbourhood.plain(anchors.texts[second])


def _read(anchors: ClassifiedAnchors, at: int) -> tuple[str, str, str]:
    """What stands in the columns `_ANCHOR`."""
    return str(anchors.ids[at]), anchors.texts[at], anchors.labels[anchors.y_N[at]]


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"
