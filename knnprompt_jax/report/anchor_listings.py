"""The listings of a saved classifier's page: classes, and the anchors that deserve a second look."""

import unicodedata

import numpy as np

from knnprompt_jax.report import neighbourhood
from knnprompt_jax.report.neighbourhood import Anchors
from knnprompt_jax.report.sections import Listing

_MOST = 20  # Rows of a listing.


def classes(anchors: Anchors) -> Listing:
    """How many anchors each class has, and how many of them the others recognise."""
    counts_CC = neighbourhood.confusion(anchors.y_N, anchors.predicted_N, len(anchors.labels))
    rows = tuple(
        (label, f"{own:,}", _share(hit, own), _share(hit, taken))
        for label, own, hit, taken in zip(
            anchors.labels, counts_CC.sum(1), counts_CC.diagonal(), counts_CC.sum(0), strict=True
        )
    )
    return Listing(
        "Recall: of the class's anchors; precision: of those taken for it.",
        ("Label", "Anchors", "Recall", "Precision"),
        rows,
    )


def misleading(anchors: Anchors) -> Listing:
    """The anchors with the most votes for a wrong class."""
    right_N, wrong_N = neighbourhood.votes(anchors.y_N, anchors.near_Nk[:, : anchors.k])
    order = [one for one in np.argsort(-wrong_N, kind="stable").tolist() if wrong_N[one]][:_MOST]
    rows = tuple((anchors.texts[one], _label(anchors, one), f"{wrong_N[one]}", f"{right_N[one]}") for one in order)
    caption = f"Votes that an anchor gives others as one of their {anchors.k} nearest."
    return Listing(caption, ("Text", "Label", "Wrong votes", "Right votes"), rows)


def suspects(anchors: Anchors) -> Listing:
    """The anchors whose neighbours mostly have another label."""
    other_N, lead_N = neighbourhood.suspicion(anchors.y_N, anchors.near_Nk, len(anchors.labels))
    order = [one for one in np.argsort(-lead_N, kind="stable").tolist() if lead_N[one] > 0.5][:_MOST]
    rows = tuple(
        (anchors.texts[one], _label(anchors, one), anchors.labels[other_N[one]], f"{100 * lead_N[one]:.0f} %")
        for one in order
    )
    caption = f"Another label leads by more than half among the {anchors.near_Nk.shape[1]} nearest anchors."
    return Listing(caption, ("Text", "Label", "Neighbours say", "Lead"), rows)


def duplicates(anchors: Anchors) -> Listing:
    """The nearest pairs: equal texts, and texts of which the model says almost the same."""
    found = neighbourhood.pairs(anchors.near_Nk, anchors.distances_Nk)
    # Equal texts are nearer than rounding shows.
    found.sort(key=lambda pair: (not _equal(anchors, *pair[:2]), pair[2]))
    rows = tuple(
        (anchors.texts[one], _label(anchors, one), anchors.texts[other], _label(anchors, other))
        + ("equal texts" if _equal(anchors, one, other) else f"{max(0.0, distance):.2g} {anchors.unit}",)
        for one, other, distance in found[:_MOST]
    )
    return Listing(
        "The pairs with the least distance; equal texts first.", ("Text", "Label", "Text", "Label", "Distance"), rows
    )


def _equal(anchors: Anchors, one: int, other: int) -> bool:
    first, second = (
        " ".join(unicodedata.normalize("NFKC", anchors.texts[at]).casefold().split()) for at in (one, other)
    )
    return first == second


def _label(anchors: Anchors, one: int) -> str:
    return anchors.labels[anchors.y_N[one]]


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"
