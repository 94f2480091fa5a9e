"""Diagnostics of predictions: the confusion matrix and calibration."""

import dataclasses

import numpy as np

from knnprompt_jax.report import drawing
from knnprompt_jax.report.page import Matrix

_MOST_CLASSES = 40  # A larger matrix is unreadable.


@dataclasses.dataclass(frozen=True)
class Bin:
    """Predictions of similar confidence, and the share of them that is right."""

    confidence: float
    accuracy: float
    count: int


def calibration(y_Q: np.ndarray, probabilities_QC: np.ndarray, predicted_Q: np.ndarray) -> list[Bin]:
    """Return accuracy by the probability of the predicted class, in ten bins of equal width without the empty ones."""
    confidence_Q, right_Q = probabilities_QC[np.arange(len(y_Q)), predicted_Q], predicted_Q == y_Q
    bins_Q = np.minimum((confidence_Q * 10).astype(int), 9)
    members = [bins_Q == index for index in np.unique(bins_Q)]
    return [Bin(float(confidence_Q[in_Q].mean()), float(right_Q[in_Q].mean()), int(in_Q.sum())) for in_Q in members]


def calibration_error(bins: list[Bin]) -> float:
    """Return the expected calibration error: the mean distance between confidence and accuracy over predictions."""
    total = sum(each.count for each in bins)
    return sum(each.count * abs(each.confidence - each.accuracy) for each in bins) / total


def confusion(labels: tuple[str, ...], counts_CC: np.ndarray, caption: str) -> Matrix:
    """Return the confusion matrix, true classes in rows; without numbers if there are too many classes to read."""
    if len(labels) > _MOST_CLASSES:
        return Matrix(f"{len(labels)} classes are too many for a readable confusion matrix.", ())
    caption = f"{caption} The stronger the colour, the larger the share of its row."
    return Matrix(caption, labels, tuple(map(tuple, counts_CC.tolist())))


def reliability(
    y_Q: np.ndarray, probabilities_QC: np.ndarray, predicted_Q: np.ndarray, rows: str = "anchors"
) -> drawing.Figure:
    """Draw a reliability diagram: accuracy against the probability of the prediction; `rows` names what was classified."""
    bins = calibration(y_Q, probabilities_QC, predicted_Q)
    panel = drawing.Panel("", "probability, %", "right, %")
    panel.axes.plot([0, 100], [0, 100], color=drawing.GREY, linestyle=":", linewidth=1)
    confidence, accuracy = [100 * each.confidence for each in bins], [100 * each.accuracy for each in bins]
    errors = [100 * np.sqrt(each.accuracy * (1 - each.accuracy) / each.count) for each in bins]
    panel.axes.errorbar(confidence, accuracy, errors, **drawing.look(0).style, elinewidth=0.8)
    for place, each in zip(zip(confidence, accuracy, strict=True), bins, strict=True):
        panel.axes.annotate(f"{each.count}", place, (5, -9), textcoords="offset points", fontsize=7)
    panel.axes.set(xlim=(0, 105), ylim=(0, 105))
    caption = (
        f"Accuracy of predictions by their probability, with ± one standard error and the number of {rows}; on the dotted line "
        f"both agree. Expected calibration error: {100 * calibration_error(bins):.1f} points."
    )
    return drawing.Figure("calibration", caption, (panel.svg,))
