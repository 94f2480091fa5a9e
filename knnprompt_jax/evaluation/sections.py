"""Measures of predictions, and the sections of the page that shows them."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from sklearn import metrics

from knnprompt_jax import tables
from knnprompt_jax.report import drawing, figures
from knnprompt_jax.report.page import Listing, Section
from knnprompt_jax.tasks.task import Example, Task

COVERAGES = (0.5, 0.8, 0.9, 1.0)
_MOST = 20  # The most mistakes that are listed.
CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True, eq=False)
class Measures:
    """Measures of Q predictions for C classes: `y_Q` are the true classes, `probabilities_QC` sum to 1 for each row."""

    labels: tuple[str, ...]
    y_Q: np.ndarray
    predicted_Q: np.ndarray
    probabilities_QC: np.ndarray

    @functools.cached_property
    def overall(self) -> dict[str, Any]:
        """Measures of all rows, by name; shares are from 0 to 1."""
        classes = range(len(self.labels))
        right = int(np.sum(self.y_Q == self.predicted_Q))
        interval = stats.binomtest(right, len(self.y_Q)).proportion_ci(CONFIDENCE, "wilson")
        bins = figures.calibration(self.y_Q, self.probabilities_QC, self.predicted_Q)
        return {
            "rows": len(self.y_Q),
            "accuracy": right / len(self.y_Q),
            "accuracy_low": float(interval.low),  # Wilson's interval.
            "accuracy_high": float(interval.high),
            "commonest_class": float(np.bincount(self.y_Q).max() / len(self.y_Q)),  # The accuracy of predicting it.
            # The mean of all classes that occur, as label or as prediction.
            "macro_f1": float(metrics.f1_score(self.y_Q, self.predicted_Q, average="macro", zero_division=0)),
            # The mean of −log p of the true class, in nats; a p of 0 counts as 2e-16.
            "log_loss": float(metrics.log_loss(self.y_Q, self.probabilities_QC, labels=classes)),
            "impossible_rows": int(np.sum(self.probabilities_QC[np.arange(len(self.y_Q)), self.y_Q] == 0)),
            # Summed over classes: from 0 to 2.
            "brier_score": float(
                metrics.brier_score_loss(self.y_Q, self.probabilities_QC, labels=classes, scale_by_half=False)
            ),
            "expected_calibration_error": figures.calibration_error(bins),  # In ten bins of equal width.
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
    def confidence_Q(self) -> np.ndarray:
        """The probability of each predicted class."""
        return self.probabilities_QC[np.arange(len(self.y_Q)), self.predicted_Q]

    @functools.cached_property
    def coverage(self) -> pd.DataFrame:
        """The risk-coverage curve: of the rows with at least a probability, the share of all rows and the accuracy."""
        order = np.argsort(-self.confidence_Q, kind="stable")
        p_Q, right_Q = self.confidence_Q[order], (self.y_Q == self.predicted_Q)[order]
        last = np.append(np.flatnonzero(np.diff(p_Q)), len(order) - 1)  # Rows of equal probability count together.
        accuracy = np.cumsum(right_Q)[last] / (last + 1)
        return pd.DataFrame({"probability": p_Q[last], "coverage": (last + 1) / len(order), "accuracy": accuracy})

    def at_coverages(self, shares: Sequence[float]) -> pd.DataFrame:
        """Return the first points of the curve that cover at least these shares of all rows."""
        return self.coverage.iloc[np.unique(np.searchsorted(self.coverage.coverage, shares))]

    def to_dict(self) -> dict[str, Any]:
        """Return all measures by name."""
        overall = dict(self.overall)
        interval = {"low": overall.pop("accuracy_low"), "high": overall.pop("accuracy_high")}
        return {
            **overall,
            "accuracy_interval": {**interval, "confidence": CONFIDENCE, "method": "wilson"},
            "classes": self.per_class.to_dict("records"),
            "confusion": {"labels": list(self.labels), "counts": self.confusion_CC.tolist()},
            "risk_coverage": self.coverage.to_dict("records"),
        }

    def to_csv(self) -> str:
        """Return a line per number: measure, class (empty for all), value."""
        rows = [(name, "", value) for name, value in self.overall.items()]
        for each in self.per_class.to_dict("records"):
            rows += [(name, tables.to_cell(each["label"]), value) for name, value in each.items() if name != "label"]
        table = pd.DataFrame(rows, columns=["measure", "class", "value"], dtype=object)
        return table.to_csv(index=False, lineterminator="\n")


def build(measured: Measures, examples: Sequence[Example], task: Task) -> list[Section]:
    """Return the sections in order. Classes are named by their label words if these differ."""
    words = dict(zip(task.labels, task.label_words, strict=True))
    names = [words[label] for label in measured.labels]
    labels = tuple(names if len(set(names)) == len(names) else measured.labels)
    caption = "Rows by their label (rows) and their prediction (columns)."
    confusion = figures.confusion(labels, measured.confusion_CC, caption)
    with drawing.style():
        reliability = figures.reliability(measured.y_Q, measured.probabilities_QC, measured.predicted_Q, "rows")
        risk = _risk(measured)
    calibration = "Whether predictions with probability p are right in a share p of the cases."
    coverage = "Accuracy if only the rows with the highest probabilities are answered, and people answer the others."
    mistakes = "Most probable first: a label may be wrong, or a class may lack anchors."
    classes, by_share = "Rows by their label and their prediction.", _coverage(measured)
    wrong = _mistakes(measured, examples, task, labels)
    return [
        Section("summary", "Summary", "All rows together.", listings=(_summary(measured),)),
        Section("classes", "Confusion matrix", classes, listings=(_classes(measured, labels),), matrices=(confusion,)),
        Section("calibration", "Calibration", calibration, figures=(reliability,)),
        Section("coverage", "Accuracy against coverage", coverage, listings=(by_share,), figures=(risk,)),
        Section("mistakes", "Mistakes", mistakes, listings=(wrong,)),
    ]


def describe(measured: Measures) -> str:
    """Return the measures of all rows and of each class as text."""
    summary, *listings = _summary(measured), _coverage(measured), _classes(measured, measured.labels)
    lines = [f"{name}: {value}. {meaning}" for name, value, meaning in summary.rows]
    described = [f"{each.caption}\n\n{tables.render(each.headers, each.rows)}" for each in listings]
    return "\n\n".join([f"{summary.caption}\n\n" + "\n".join(lines), *described])


def _summary(measured: Measures) -> Listing:
    overall = measured.overall
    low, high = 100 * overall["accuracy_low"], 100 * overall["accuracy_high"]
    loss = "Mean −log of the probability of the true class, in nats."
    if overall["impossible_rows"]:
        loss += f" {overall['impossible_rows']:,} rows had probability 0 and count as 36 each."
    interval = f"Wilson's {100 * CONFIDENCE:.0f} % interval: {low:.1f} to {high:.1f} %."
    error = f"{100 * overall['expected_calibration_error']:.1f} points"
    rows = (
        ("Accuracy", _percent(overall["accuracy"]), interval),
        ("Most common class", _percent(overall["commonest_class"]), "The accuracy of always predicting it."),
        ("Macro F1", _percent(overall["macro_f1"]), "Mean F1 of all classes that occur, as label or as prediction."),
        ("Log loss", f"{overall['log_loss']:.3f}", loss),
        ("Brier score", f"{overall['brier_score']:.3f}", "Mean squared error of the probabilities: 0 to 2."),
        ("Expected calibration error", error, "Mean difference between probability and accuracy, in ten bins."),
    )
    return Listing(f"Measured on {overall['rows']:,} rows.", ("Measure", "Value", "Meaning"), rows)


def _classes(measured: Measures, labels: Sequence[str]) -> Listing:
    rows = tuple(
        (label, f"{each.rows:,}", *map(_percent, (each.precision, each.recall, each.f1)))
        for label, each in zip(labels, measured.per_class.itertuples(), strict=True)
    )
    caption = "Recall: share of the class's rows; precision: share of its predictions; F1: their harmonic mean."
    return Listing(caption, ("Label", "Rows", "Precision", "Recall", "F1"), rows)


def _coverage(measured: Measures) -> Listing:
    rows = tuple(
        (_percent(point.coverage), f"{point.probability:.2f}", _percent(point.accuracy))
        for point in measured.at_coverages(COVERAGES).itertuples()
    )
    headers = ("Rows answered", "Probability at least", "Accuracy")
    return Listing("Rows with the same probability are answered together.", headers, rows)


def _risk(measured: Measures) -> drawing.Figure:
    """Draw accuracy against coverage."""
    panel, curve = drawing.Panel("", "rows answered, %", "accuracy, %"), measured.coverage
    style = drawing.look(0) | ({"marker": ""} if len(curve) > _MOST else {})
    panel.axes.plot(100 * curve.coverage, 100 * curve.accuracy, **style)
    panel.axes.axhline(100 * measured.overall["accuracy"], color=drawing.GREY, linestyle=":", linewidth=1)
    panel.axes.set(xlim=(0, 105), ylim=(min(50, 95 * curve.accuracy.min()), 102))
    caption = "Accuracy on the rows of highest probability, by their share of all rows; dotted: on all rows."
    return drawing.Figure("coverage", caption, (panel.svg,))


def _mistakes(measured: Measures, examples: Sequence[Example], task: Task, labels: Sequence[str]) -> Listing:
    wrong_Q, p_Q = measured.y_Q != measured.predicted_Q, measured.confidence_Q
    order = [at for at in np.argsort(-p_Q, kind="stable").tolist() if wrong_Q[at]][:_MOST]
    rows = tuple(
        (row.source, task.retrieval_text(row), labels[true], labels[predicted], f"{p:.2f}")
        for row, true, predicted, p in (
            (examples[at], measured.y_Q[at], measured.predicted_Q[at], p_Q[at]) for at in order
        )
    )
    count = int(wrong_Q.sum())
    shown = f"{len(rows)} of {count:,} mistakes" if count > len(rows) else f"{count:,} mistakes"
    return Listing(f"{shown}, most probable first.", ("Row", "Text", "Label", "Prediction", "Probability"), rows)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}\u00a0%"  # No line break before the sign.
