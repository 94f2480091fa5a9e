"""Figures of what was predicted: which class is taken for which, and how far probabilities can be believed."""

import numpy as np

from knnprompt_jax.report import drawing, neighbourhood
from knnprompt_jax.report.sections import Matrix

_MOST_CLASSES = 40  # Of which a matrix can be read.


def confusion(labels: tuple[str, ...], counts_CC: np.ndarray, caption: str) -> Matrix:
    """Counts of true class (rows) and predicted class (columns); without numbers where there are too many classes to read."""
    if len(labels) > _MOST_CLASSES:
        return Matrix(f"{len(labels)} classes are too many for a table of what is taken for what.", ())
    return Matrix(
        f"{caption} The stronger the colour, the larger the share of its row.",
        labels,
        tuple(map(tuple, counts_CC.tolist())),
    )


def reliability(
    y_Q: np.ndarray, shares_QC: np.ndarray, predicted_Q: np.ndarray, rows: str = "anchors"
) -> drawing.Figure:
    """Accuracy against the probability of the label; `rows` says what was classified."""
    bins = neighbourhood.calibration(y_Q, shares_QC, predicted_Q)
    panel = drawing.Panel("", "probability, %", "right, %")
    panel.axes.plot([0, 100], [0, 100], color=drawing.GREY, linestyle=":", linewidth=1)
    sure, right = [100 * each.confidence for each in bins], [100 * each.accuracy for each in bins]
    errors = [100 * np.sqrt(each.accuracy * (1 - each.accuracy) / each.count) for each in bins]
    panel.axes.errorbar(sure, right, errors, **drawing.look(0).style, elinewidth=0.8)
    for place, each in zip(zip(sure, right, strict=True), bins, strict=True):
        panel.axes.annotate(f"{each.count}", place, (5, -9), textcoords="offset points", fontsize=7)
    panel.axes.set(xlim=(0, 105), ylim=(0, 105))
    off = 100 * neighbourhood.calibration_error(bins)
    caption = (
        f"How often labels of about the same probability are right, with ± one standard error and the number of {rows}; on the dotted "
        f"line as often as their probability says. Expected calibration error: {off:.1f} points."
    )
    return drawing.Figure("calibration", caption, (panel.svg,))
