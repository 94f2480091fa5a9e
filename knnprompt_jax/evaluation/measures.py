"""Accuracy, F1, calibration and coverage of predictions."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from sklearn import metrics

from knnprompt_jax import tables
from knnprompt_jax.report import outcomes

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
        bins = outcomes.calibration(self.y_Q, self.probabilities_QC, self.predicted_Q)
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
            "expected_calibration_error": outcomes.calibration_error(bins),  # In ten bins of equal width.
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
