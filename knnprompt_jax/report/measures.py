"""Measures of predictions with known labels; tables and sections for the page of `evaluate`."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from sklearn import metrics

from knnprompt_jax.classifier.confidence import selective
from knnprompt_jax.classifier.confidence.novelty import Novelty
from knnprompt_jax.report import drawing
from knnprompt_jax.report.page import Listing, Section

CONFIDENCE = 0.95
PROMISES = (0.01, 0.02, 0.05, 0.1, 0.2)
_PROBABILITIES = (0.9, 0.7, 0.5, 0.0)
_MAX_PAIRS = 20  # Pairs of classes that are listed.


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
        bins = self.calibration
        interval = stats.binomtest(int(self.is_right_Q.sum()), len(self.y_Q)).proportion_ci(CONFIDENCE, "wilson")
        return {
            "rows": len(self.y_Q),
            "accuracy": float(self.is_right_Q.mean()),
            "accuracy_interval": {"low": float(interval.low), "high": float(interval.high)},  # Wilson's, of 95 %.
            "commonest_class": float(np.bincount(self.y_Q).max() / len(self.y_Q)),  # The accuracy of predicting it.
            # The mean of all classes that occur, as label or as prediction.
            "macro_f1": float(metrics.f1_score(self.y_Q, self.predicted_Q, average="macro", zero_division=0)),
            # The mean of −log p of the true class, in nats; a p of 0 counts as 2e-16.
            "log_loss": float(-np.log(np.maximum(p_Q, np.finfo(np.float64).eps)).mean()),
            # Summed over classes: from 0 to 2.
            "brier_score": float(((self.probabilities_QC**2).sum(-1) - 2 * p_Q + 1).mean()),
            # The mean distance between confidence and accuracy over predictions.
            "expected_calibration_error": float(np.average(abs(bins.confidence - bins.accuracy), weights=bins.rows)),
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
        return metrics.confusion_matrix(self.y_Q, self.predicted_Q, labels=range(len(self.labels)))

    @property
    def is_right_Q(self) -> np.ndarray:
        """Whether each prediction is right."""
        return self.y_Q == self.predicted_Q

    @property
    def confidence_Q(self) -> np.ndarray:
        """The probability of each predicted class."""
        return self.probabilities_QC[np.arange(len(self.y_Q)), self.predicted_Q]

    @functools.cached_property
    def calibration(self) -> pd.DataFrame:
        """The mean confidence, accuracy and number of rows in ten bins of equal width, without the empty ones."""
        rows = pd.DataFrame({"confidence": self.confidence_Q, "accuracy": self.is_right_Q, "rows": 1})
        bins_Q = np.minimum((self.confidence_Q * 10).astype(int), 9)
        return rows.groupby(bins_Q).agg({"confidence": "mean", "accuracy": "mean", "rows": "sum"})

    def to_dict(self) -> dict[str, Any]:
        """Return the measures of all rows and of each class, and the confusion matrix."""
        counts = {"labels": list(self.labels), "counts": self.confusion_CC.tolist()}
        return {**self.overall, "classes": self.per_class.to_dict("records"), "confusion": counts}

    def certainty(self, thresholds: Mapping[float, float]) -> list[dict[str, Any]]:
        """Return the rows answered and the wrong ones among them, if rows below a probability are left to people.

        A probability without a promise has an entry if it answers more rows than the one before.

        Args:
            thresholds: the probability from which on each promised error rate is kept.
        """
        points = [*thresholds.items(), *((None, probability) for probability in _PROBABILITIES)]
        records: list[dict[str, Any]] = []
        for max_error, probability in sorted(points, key=lambda point: -point[1]):
            is_answered_Q = self.confidence_Q >= probability
            counts = {"rows": int(is_answered_Q.sum()), "wrong": int((is_answered_Q & ~self.is_right_Q).sum())}
            if max_error or counts["rows"] > (records[-1]["rows"] if records else 0):
                records.append({"max_error": max_error, "probability": probability, **counts})
        return records

    def scope(self, scores_M: np.ndarray, novelty: Novelty, threshold: float) -> dict[str, Any]:
        """Return measures of novelty: these rows against M texts that belong to no class, by their novelty scores.

        The measures are those of Larson et al. 2019, "An evaluation dataset for intent classification and out-of-scope
        prediction": a row of a class that is rejected counts as a wrong prediction. Shares are from 0 to 1.
        """
        assert self.novelty_Q is not None
        is_rejected_Q = novelty.p_values(self.novelty_Q) <= threshold
        truth = np.repeat([False, True], [len(self.novelty_Q), len(scores_M)])
        return {
            "rows": len(scores_M),
            "area_under_curve": float(metrics.roc_auc_score(truth, np.concatenate([self.novelty_Q, scores_M]))),
            "reject_novel": threshold,
            "recall": float((novelty.p_values(scores_M) <= threshold).mean()),
            "in_scope_rejected": float(is_rejected_Q.mean()),
            "in_scope_accuracy": float((self.is_right_Q & ~is_rejected_Q).mean()),
        }


def find_thresholds(p_N: np.ndarray, right_N: np.ndarray) -> dict[float, float]:
    """Return the probability from which on each promise is kept, without promises that cannot be certified.

    `p_N` and `right_N` are those of held-out rows (`selective`).
    """
    found = {max_error: selective.threshold(p_N, right_N, max_error) for max_error in PROMISES}
    return {max_error: threshold for max_error, threshold in found.items() if threshold is not None}


def percent(share: float) -> str:
    """Return a share in %."""
    return f"{100 * share:.1f}\u00a0%"  # No line break before the sign.


def list_overall(measured: Measures) -> Listing:
    """Return the measures of all rows."""
    overall = measured.overall
    interval = overall["accuracy_interval"]
    smallest = measured.per_class.rows[measured.per_class.rows > 0].min()
    rows = (
        ("Accuracy", percent(overall["accuracy"])),
        ("Wilson's 95 % interval of the accuracy", f"{100 * interval['low']:.1f} to {percent(interval['high'])}"),
        ("Accuracy of always predicting the most common class", percent(overall["commonest_class"])),
        (f"Macro F1: mean of all classes; the smallest has {smallest:,} rows", percent(overall["macro_f1"])),
        ("Log loss: mean −log of the true class's probability, in nats", f"{max(0, overall['log_loss']):.3f}"),
        ("Brier score: squared error of the probabilities, from 0 (best) to 2", f"{overall['brier_score']:.3f}"),
        ("Expected calibration error, in ten bins", percent(overall["expected_calibration_error"])),
    )
    return Listing(f"Rows measured: {overall['rows']:,}.", ("Measure", "Value"), rows)


def list_classes(measured: Measures) -> Listing:
    """Return precision, recall and F1 of each class that has rows, the lowest F1 first."""
    classes = measured.per_class
    entries = tuple(
        (row.label, f"{row.rows:,}", percent(row.precision), percent(row.recall), percent(row.f1))
        for row in classes[classes.rows > 0].sort_values("f1", kind="stable").itertuples()
    )
    caption = (
        "Recall: share of the class's rows that are predicted correctly; precision: share of its predictions that "
        "are right; F1: their harmonic mean."
    )
    return Listing(caption, ("Label", "Rows", "Precision", "Recall", "F1"), entries)


def list_confusions(measured: Measures) -> Listing:
    """Return the pairs of a label and another prediction that have the most rows."""
    pairs = pd.DataFrame({"true": measured.y_Q, "predicted": measured.predicted_Q})[~measured.is_right_Q]
    counts = pairs.groupby(["true", "predicted"]).size().sort_values(ascending=False, kind="stable")
    entries = []
    for (true, predicted), count in counts.head(_MAX_PAIRS).items():
        share = percent(count / measured.per_class.rows[true])
        entries.append((measured.labels[true], measured.labels[predicted], f"{count:,}", share))
    caption = "The most confused pairs of classes. Share: of the rows that have the label."
    return Listing(caption, ("Label", "Prediction", "Rows", "Share"), tuple(entries))


def list_certainty(certainty: Sequence[Mapping[str, Any]]) -> Listing:
    """Return the table of `Measures.certainty` as text."""
    entries = []
    for row in certainty:
        wrong = f"{percent(row['wrong'] / row['rows'])} ({row['wrong']:,})" if row["rows"] else "–"
        promise = f"{100 * row['max_error']:g}\u00a0%" if row["max_error"] else "–"
        entries.append((selective.rounded(row["probability"]), f"{row['rows']:,}", wrong, promise))
    caption = (
        "Rows answered if less probable predictions are left to people, and what was wrong among them. Promise: what "
        f"predict --max_error= promises from here on (–: nothing), for {100 * selective.CONFIDENCE:.0f}\u00a0% of the draws "
        "of train rows and texts from the same mixture."
    )
    return Listing(caption, ("Probability at least", "Rows answered", "Wrong among them", "Promise"), tuple(entries))


def list_scope(scope: Mapping[str, Any]) -> Listing:
    """Return the table of `Measures.scope` as text."""
    threshold = scope["reject_novel"]
    rows = (
        ("Area under the curve: how often novelty ranks a pair rightly", percent(scope["area_under_curve"])),
        ("Out-of-scope recall: share of the texts out of scope that are rejected", percent(scope["recall"])),
        (f"Rows of the classes rejected; {percent(threshold)} is expected", percent(scope["in_scope_rejected"])),
        ("Accuracy, if rejected rows count as wrong", percent(scope["in_scope_accuracy"])),
    )
    caption = f"Texts out of scope: {scope['rows']:,}; rejected: novelty p-value at most {threshold:g}."
    return Listing(caption, ("Measure", "Value"), rows)


def calibration(measured: Measures, listings: tuple[Listing, ...]) -> Section:
    """Return tables and the reliability diagram: accuracy against the probability of the prediction, in bins."""
    bins = 100 * measured.calibration
    panel = drawing.Panel("", "probability, %", "right, %")
    panel.axes.plot([0, 100], [0, 100], color=drawing.GREY, linestyle=":", linewidth=1)
    panel.axes.plot(bins.confidence, bins.accuracy, **drawing.line_style(0))
    panel.axes.set(xlim=(0, 105), ylim=(0, 105))
    caption = "Accuracy of predictions by their probability, in ten bins of rows; on the dotted line both agree."
    text = "Are predictions with probability p % right in p % of cases?"
    figure = drawing.Figure("calibration", caption, (panel.svg,))
    return Section("certainty", "Certainty", text, listings=listings, figures=(figure,))
