"""What a saved classifier's page draws: its map, what is taken for what, and how far its votes can be believed."""

import numpy as np

from knnprompt_jax.report import drawing, embedding, outcomes
from knnprompt_jax.report.neighbourhood import ClassifiedAnchors
from knnprompt_jax.report.sections import Matrix


def map_of(anchors: ClassifiedAnchors, most: int) -> embedding.Map:
    """The anchors by their states, `most` of them, drawn at random; neighbours that are not among them are left out."""
    drawn = np.sort(np.random.default_rng(0).permutation(len(anchors.texts))[:most])
    places = {int(anchor): place for place, anchor in enumerate(drawn)}
    points = []
    for anchor in drawn.tolist():
        near = zip(anchors.near_Nk[anchor].tolist(), anchors.distances_Nk[anchor].tolist(), strict=True)
        kept = tuple((places[other], distance) for other, distance in near if other in places)
        true, predicted = (anchors.labels[y_N[anchor]] for y_N in (anchors.y_N, anchors.predicted_N))
        points.append(embedding.Point(anchors.texts[anchor], true, predicted, neighbours=kept))
    count = len(anchors.texts)
    share = "" if len(drawn) == count else f"{len(drawn):,} of {count:,} anchors, drawn at random: "
    return embedding.Map(
        name="anchors",
        title="",
        caption=f"{share}t-SNE of hidden states; shapes and colours are labels. Hollow: the other anchors say another label.",
        labels=anchors.labels,
        points=tuple(points),
        places_N2=embedding.places(anchors.hidden_NE[drawn]),
        unit=anchors.unit,
        row="anchor",
    )


def confusion(anchors: ClassifiedAnchors) -> Matrix:
    """Counts of label and prediction; without numbers where there are too many classes to read."""
    caption = "Anchors by their label (rows) and what the others take them for (columns)."
    return outcomes.confusion(anchors.labels, anchors.confusion_CC, caption)


def calibration(anchors: ClassifiedAnchors) -> drawing.Figure:
    """Accuracy against the share of the vote."""
    return outcomes.reliability(anchors.y_N, anchors.shares_NC, anchors.predicted_N)
