"""The figures of a saved classifier's page: its map, what is taken for what, and how far its votes can be believed."""

import numpy as np

from knnprompt_jax.report import drawing, embedding, heatmaps, neighbourhood
from knnprompt_jax.report.neighbourhood import Anchors

_MOST_CLASSES = 20  # Of which a heatmap's numbers can be read.


def map_of(anchors: Anchors, most: int) -> embedding.Map:
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
        caption=f"{share}t-SNE of hidden states; colours are labels, shapes say whether the other anchors agree.",
        labels=anchors.labels,
        points=tuple(points),
        places_N2=embedding.places(anchors.hidden_NE[drawn]),
        unit=anchors.unit,
        row="anchor",
    )


def confusion(anchors: Anchors) -> drawing.Figure:
    """Counts of label and prediction; empty where there are too many classes to read."""
    caption = "Anchors by their label (rows) and what the others take them for (columns)."
    if len(anchors.labels) > _MOST_CLASSES:
        return drawing.Figure("confusion", f"{len(anchors.labels)} classes are too many to draw.", ())
    names = [drawing.drawable(embedding.shorten(label, 16)) for label in anchors.labels]
    panel = heatmaps.matrix("", "taken for", "label", anchors.confusion_CC, names)
    return drawing.Figure("confusion", caption, (panel,))


def calibration(anchors: Anchors) -> drawing.Figure:
    """Accuracy against the share of the vote."""
    bins = neighbourhood.calibration(anchors.y_N, anchors.shares_NC, anchors.predicted_N)
    panel = drawing.Panel("", "share of the vote, %", "right, %")
    panel.axes.plot([0, 100], [0, 100], color=drawing.GREY, linestyle=":", linewidth=1)
    sure, right = [100 * each.confidence for each in bins], [100 * each.accuracy for each in bins]
    errors = [100 * np.sqrt(each.accuracy * (1 - each.accuracy) / each.count) for each in bins]
    panel.axes.errorbar(sure, right, errors, **drawing.look(0).style, elinewidth=0.8)
    for place, each in zip(zip(sure, right, strict=True), bins, strict=True):
        panel.axes.annotate(f"{each.count}", place, (5, -9), textcoords="offset points", fontsize=7)
    panel.axes.set(xlim=(0, 105), ylim=(0, 105))
    off = 100 * neighbourhood.calibration_error(bins)
    caption = (
        f"How often a vote of a given share is right, with ± one standard error and the number of anchors; on the dotted line a share "
        f"could be read as a probability. Expected calibration error: {off:.1f} points."
    )
    return drawing.Figure("calibration", caption, (panel.svg,))
