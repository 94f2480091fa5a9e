"""Accuracy, F1, calibration and coverage of predictions."""

import dataclasses
import functools

import numpy as np
from scipy import stats
from sklearn import metrics

from knnprompt_jax.report import outcomes

CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True)
class PerClass:
    """The rows, precision, recall and F1 of a class; 0 where the denominator is 0."""

    label: str
    rows: int
    precision: float
    recall: float
    f1: float


@dataclasses.dataclass(frozen=True)
class Covered:
    """The rows whose prediction has at least this probability: their share of all rows, and the accuracy on them."""

    probability: float
    coverage: float
    accuracy: float


@dataclasses.dataclass(frozen=True, eq=False)
class Measures:
    """Measures of Q predictions for C classes: `y_Q` are the true classes, `probabilities_QC` sum to 1 for each row."""

    labels: tuple[str, ...]
    y_Q: np.ndarray
    predicted_Q: np.ndarray
    probabilities_QC: np.ndarray

    @property
    def accuracy(self) -> float:
        return float(metrics.accuracy_score(self.y_Q, self.predicted_Q))

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's interval of the accuracy, at the confidence `CONFIDENCE`."""
        right = int(np.sum(self.y_Q == self.predicted_Q))
        interval = stats.binomtest(right, len(self.y_Q)).proportion_ci(CONFIDENCE, "wilson")
        return float(interval.low), float(interval.high)

    @property
    def macro_f1(self) -> float:
        """The mean F1 of all classes that occur, as label or as prediction."""
        return float(metrics.f1_score(self.y_Q, self.predicted_Q, average="macro", zero_division=0))

    @functools.cached_property
    def per_class(self) -> tuple[PerClass, ...]:
        columns = metrics.precision_recall_fscore_support(
            self.y_Q, self.predicted_Q, labels=range(len(self.labels)), zero_division=0
        )
        precision_C, recall_C, f1_C, rows_C = (column.tolist() for column in columns)
        return tuple(map(PerClass, self.labels, map(int, rows_C), precision_C, recall_C, f1_C))

    @property
    def confusion_CC(self) -> np.ndarray:
        """The number of rows of each class (rows) that are predicted as each class (columns)."""
        return metrics.confusion_matrix(self.y_Q, self.predicted_Q, labels=range(len(self.labels)))

    @property
    def log_loss(self) -> float:
        """The mean of −log p of the true class, in nats; a p of 0 counts as 2e-16."""
        return float(metrics.log_loss(self.y_Q, self.probabilities_QC, labels=range(len(self.labels))))

    @property
    def impossible(self) -> int:
        """The number of rows whose true class has the probability 0."""
        return int(np.sum(self.probabilities_QC[np.arange(len(self.y_Q)), self.y_Q] == 0))

    @property
    def brier(self) -> float:
        """The mean squared error of the probabilities, summed over classes: from 0 to 2."""
        classes = range(len(self.labels))
        return float(metrics.brier_score_loss(self.y_Q, self.probabilities_QC, labels=classes, scale_by_half=False))

    @property
    def calibration_error(self) -> float:
        """The expected calibration error, in ten bins of equal width."""
        return outcomes.calibration_error(outcomes.calibration(self.y_Q, self.probabilities_QC, self.predicted_Q))

    @property
    def confidence_Q(self) -> np.ndarray:
        """The probability of each predicted class."""
        return self.probabilities_QC[np.arange(len(self.y_Q)), self.predicted_Q]

    @functools.cached_property
    def coverage(self) -> tuple[Covered, ...]:
        """The risk-coverage curve: rows by decreasing probability, rows of equal probability together."""
        order = np.argsort(-self.confidence_Q, kind="stable")
        p_Q, right_Q = self.confidence_Q[order], (self.y_Q == self.predicted_Q)[order]
        last = np.append(np.flatnonzero(np.diff(p_Q)), len(order) - 1)
        right = np.cumsum(right_Q)[last] / (last + 1)
        columns = p_Q[last], (last + 1) / len(order), right
        return tuple(map(Covered, *(column.tolist() for column in columns)))

    def at_coverage(self, share: float) -> Covered:
        """Return the first point of the curve that covers at least this share of all rows."""
        return next(point for point in self.coverage if point.coverage >= share)
