"""Measures of predictions with known labels, and the sections that the pages of `look` and `evaluate` share."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from sklearn import metrics

from knnprompt_jax.confidence import selective
from knnprompt_jax.report import drawing
from knnprompt_jax.report.page import Listing, Matrix, Section

CONFIDENCE = 0.95
_MAX_CLASSES = 40  # A larger matrix is unreadable.
_MAX_PAIRS = 20  # Pairs of classes that are listed in its place.


@dataclasses.dataclass(frozen=True, eq=False)
class Measures:
    """Measures of Q predictions for C classes: `y_Q` are the true classes, `probabilities_QC` sum to 1 for each row.

    `novelty_Q` says how unlike the train rows each row is; None if it is unknown.
    """

    labels: tuple[str, ...]
    y_Q: np.ndarray
    predicted_Q: np.ndarray
    probabilities_QC: np.ndarray
    novelty_Q: np.ndarray | None = None

    @functools.cached_property
    def overall(self) -> dict[str, Any]:
        """Measures of all rows, by name; shares are from 0 to 1."""
        p_Q = self.probabilities_QC[np.arange(len(self.y_Q)), self.y_Q]
        right = int(np.sum(self.y_Q == self.predicted_Q))
        interval = stats.binomtest(right, len(self.y_Q)).proportion_ci(CONFIDENCE, "wilson")
        return {
            "rows": len(self.y_Q),
            "accuracy": right / len(self.y_Q),
            "accuracy_low": float(interval.low),  # Wilson's interval.
            "accuracy_high": float(interval.high),
            "commonest_class": float(np.bincount(self.y_Q).max() / len(self.y_Q)),  # The accuracy of predicting it.
            # The mean of all classes that occur, as label or as prediction.
            "macro_f1": float(metrics.f1_score(self.y_Q, self.predicted_Q, average="macro", zero_division=0)),
            # The mean of −log p of the true class, in nats; a p of 0 counts as 2e-16.
            "log_loss": float(-np.log(np.maximum(p_Q, np.finfo(np.float64).eps)).mean()),
            "impossible_rows": int(np.sum(p_Q == 0)),
            # Summed over classes: from 0 to 2.
            "brier_score": float(((self.probabilities_QC**2).sum(-1) - 2 * p_Q + 1).mean()),
            "expected_calibration_error": self.calibration_error,
        }

    @functools.cached_property
    def per_class(self) -> pd.DataFrame:
        """The label, rows, precision, recall and F1 of each class; 0 where the denominator is 0."""
        precision_C, recall_C, f1_C, rows_C = metrics.precision_recall_fscore_support(
            self.y_Q, self.predicted_Q, labels=range(len(self.labels)), zero_division=0
        )
        columns = {"label": self.labels, "rows": rows_C, "precision": precision_C, "recall": recall_C, "f1": f1_C}
        return pd.DataFrame(columns)

    @property
    def confusion_CC(self) -> np.ndarray:
        """The number of rows of each class (rows) that are predicted as each class (columns)."""
        counts_CC = np.zeros((len(self.labels), len(self.labels)), int)
        np.add.at(counts_CC, (self.y_Q, self.predicted_Q), 1)
        return counts_CC

    @property
    def confidence_Q(self) -> np.ndarray:
        """The probability of each predicted class."""
        return self.probabilities_QC[np.arange(len(self.y_Q)), self.predicted_Q]

    @functools.cached_property
    def calibration(self) -> pd.DataFrame:
        """The mean confidence, accuracy and number of rows in ten bins of equal width, without the empty ones."""
        rows = pd.DataFrame({"confidence": self.confidence_Q, "accuracy": self.predicted_Q == self.y_Q, "rows": 1})
        bins_Q = np.minimum((self.confidence_Q * 10).astype(int), 9)
        return rows.groupby(bins_Q).agg({"confidence": "mean", "accuracy": "mean", "rows": "sum"})

    @property
    def calibration_error(self) -> float:
        """The expected calibration error: the mean distance between confidence and accuracy over predictions."""
        bins = self.calibration
        return float(np.average(abs(bins.confidence - bins.accuracy), weights=bins.rows))

    @functools.cached_property
    def coverage(self) -> pd.DataFrame:
        """The risk-coverage curve: of the rows with at least a probability, the share of all rows and the accuracy."""
        p_T, rows_T, wrong_T = selective.curve(self.confidence_Q, self.y_Q == self.predicted_Q)
        coverage_T = rows_T / len(self.y_Q)
        return pd.DataFrame({"probability": p_T, "coverage": coverage_T, "accuracy": (rows_T - wrong_T) / rows_T})

    def at_coverages(self, shares: Sequence[float]) -> pd.DataFrame:
        """Return the first points of the curve that cover at least these shares of all rows."""
        return self.coverage.iloc[np.unique(np.searchsorted(self.coverage.coverage, shares))]


def percent(share: float) -> str:
    """Return a share in %."""
    return f"{100 * share:.1f}\u00a0%"  # No line break before the sign.


def list_classes(measured: Measures, labels: Sequence[str], rows: str = "rows") -> Listing:
    """Return precision, recall and F1 of each class, the lowest F1 first; `rows` names what was classified.

    A class without rows has no recall, one without predictions no precision, and one without either no F1.
    """
    num_predictions_C = measured.confusion_CC.sum(0)
    entries = []
    classes = measured.per_class.assign(label=labels, predictions=num_predictions_C)
    classes["occurs"] = (classes.rows > 0) | (classes.predictions > 0)
    for row in classes.sort_values(["occurs", "f1"], ascending=[False, True], kind="stable").itertuples():
        precision = percent(row.precision) if row.predictions else "–"
        recall = percent(row.recall) if row.rows else "–"
        f1 = percent(row.f1) if row.occurs else "–"
        entries.append((row.label, f"{row.rows:,}", precision, recall, f1))
    caption = (
        f"Recall: share of the class's {rows} that are predicted correctly; precision: share of its predictions that "
        "are right; F1: their harmonic mean."
    )
    headers = ("Label", rows.capitalize(), "Precision", "Recall", "F1")
    return Listing(caption, headers, tuple(entries))


def confusion(measured: Measures, labels: tuple[str, ...], rows: str = "rows") -> Section:
    """Return the measures of each class and the confusion matrix, or its most confused pairs if it is too large."""
    text = f"The {rows} by their label and their prediction."
    listing = list_classes(measured, labels, rows)
    if len(labels) > _MAX_CLASSES:
        return Section("classes", "Confusion", text, listings=(listing, _pairs(measured, labels, rows)))
    caption = "Labels in rows, predictions in columns. The stronger the colour, the larger the share of its row."
    matrix = Matrix(caption, labels, tuple(map(tuple, measured.confusion_CC.tolist())))
    return Section("classes", "Confusion matrix", text, listings=(listing,), matrices=(matrix,))


def _pairs(measured: Measures, labels: Sequence[str], rows: str) -> Listing:
    """Return the pairs of a label and another prediction that have the most rows."""
    counts_CC = measured.confusion_CC
    num_rows_C = counts_CC.sum(1)
    np.fill_diagonal(counts_CC, 0)
    order = np.argsort(-counts_CC, axis=None, kind="stable")[: min(_MAX_PAIRS, np.count_nonzero(counts_CC))]
    entries = []
    for true, predicted in zip(*np.unravel_index(order, counts_CC.shape), strict=True):
        count = counts_CC[true, predicted]
        entries.append((labels[true], labels[predicted], f"{count:,}", percent(count / num_rows_C[true])))
    caption = f"The most confused pairs of {len(labels)} classes. Share: of the {rows} that have the label."
    return Listing(caption, ("Label", "Prediction", rows.capitalize(), "Share"), tuple(entries))


def calibration(measured: Measures, rows: str = "rows") -> Section:
    """Return the reliability diagram: accuracy against the probability of the prediction, in bins."""
    bins = measured.calibration
    panel = drawing.Panel("", "probability, %", "right, %")
    panel.axes.plot([0, 100], [0, 100], color=drawing.GREY, linestyle=":", linewidth=1)
    errors = np.sqrt(bins.accuracy * (1 - bins.accuracy) / bins.rows)
    panel.axes.errorbar(
        100 * bins.confidence, 100 * bins.accuracy, 100 * errors, **drawing.line_style(0), elinewidth=0.8
    )
    for confidence, accuracy, count in bins.itertuples(index=False):
        point = (100 * confidence, 100 * accuracy)
        panel.axes.annotate(f"{count}", point, (5, -9), textcoords="offset points", fontsize=7)
    panel.axes.set(xlim=(0, 105), ylim=(0, 105))
    caption = (
        f"Accuracy of predictions by their probability, with ± one standard error and the number of {rows}; on the "
        f"dotted line both agree. Expected calibration error: {100 * measured.calibration_error:.1f} points."
    )
    text = "Are predictions with probability p % right in p % of cases?"
    figure = drawing.Figure("calibration", caption, (panel.svg,))
    return Section("calibration", "Calibration", text, figures=(figure,))
