"""Diagnostics of predictions: the confusion matrix and calibration."""

import numpy as np
import pandas as pd

from knnprompt_jax.report import drawing
from knnprompt_jax.report.page import Matrix

_MOST_CLASSES = 40  # A larger matrix is unreadable.


def calibration(y_Q: np.ndarray, probabilities_QC: np.ndarray, predicted_Q: np.ndarray) -> pd.DataFrame:
    """Return the mean confidence, accuracy and number of rows in ten bins of equal width without the empty ones.

    The confidence is the probability of the predicted class.
    """
    confidence_Q = probabilities_QC[np.arange(len(y_Q)), predicted_Q]
    rows = pd.DataFrame({"confidence": confidence_Q, "accuracy": predicted_Q == y_Q, "rows": 1})
    bins_Q = np.minimum((confidence_Q * 10).astype(int), 9)
    return rows.groupby(bins_Q).agg({"confidence": "mean", "accuracy": "mean", "rows": "sum"})


def calibration_error(bins: pd.DataFrame) -> float:
    """Return the expected calibration error: the mean distance between confidence and accuracy over predictions."""
    return float(np.average(abs(bins.confidence - bins.accuracy), weights=bins.rows))


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
    errors = np.sqrt(bins.accuracy * (1 - bins.accuracy) / bins.rows)
    panel.axes.errorbar(100 * bins.confidence, 100 * bins.accuracy, 100 * errors, **drawing.look(0), elinewidth=0.8)
    for confidence, accuracy, count in bins.itertuples(index=False):
        place = 100 * confidence, 100 * accuracy
        panel.axes.annotate(f"{count}", place, (5, -9), textcoords="offset points", fontsize=7)
    panel.axes.set(xlim=(0, 105), ylim=(0, 105))
    caption = (
        f"Accuracy of predictions by their probability, with ± one standard error and the number of {rows}; on the dotted line "
        f"both agree. Expected calibration error: {100 * calibration_error(bins):.1f} points."
    )
    return drawing.Figure("calibration", caption, (panel.svg,))
