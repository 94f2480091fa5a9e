"""Measures of predictions, from numbers worked out by hand."""

import dataclasses

import numpy as np
import pytest

from knnprompt_jax.report import measures
from knnprompt_jax.report.measures import Measures


@pytest.fixture
def measured() -> Measures:
    """Seven rows of three classes, of which the last is never predicted; four are right."""
    p_CQ = np.array([[1.0, 0.8, 0.4, 0.2, 0.6, 0.6, 0.8], [0, 0.2, 0.6, 0.8, 0.2, 0.4, 0.1], [0, 0, 0, 0, 0.2, 0, 0.1]])
    y_Q = np.array([0, 0, 0, 1, 1, 2, 0])
    return Measures(("a", "b", "c"), y_Q, predicted_Q=np.array([0, 0, 1, 1, 0, 0, 0]), probabilities_QC=p_CQ.T)


def test_accuracy_and_f1(measured):
    assert measured.overall["accuracy"] == measured.overall["commonest_class"] == pytest.approx(4 / 7)
    expected = [("a", 4, 0.6, 0.75, 2 / 3), ("b", 2, 0.5, 0.5, 0.5), ("c", 1, 0, 0, 0)]
    assert measured.per_class.values.tolist() == [[*row[:4], pytest.approx(row[4])] for row in expected]
    assert measured.overall["macro_f1"] == pytest.approx((2 / 3 + 1 / 2 + 0) / 3)
    assert measured.confusion_CC.tolist() == [[3, 1, 0], [1, 1, 0], [1, 0, 0]]


def test_probabilities(measured):
    truth = [1.0, 0.8, 0.4, 0.8, 0.2, 0.0, 0.8]
    loss = -np.mean(np.log(np.maximum(truth, np.finfo(float).eps)))
    assert measured.overall["log_loss"] == pytest.approx(loss)
    squares = [0, 0.08, 0.72, 0.08, 0.36 + 0.64 + 0.04, 0.36 + 0.16 + 1, 0.04 + 0.01 + 0.01]
    assert measured.overall["brier_score"] == pytest.approx(np.mean(squares))
    # Bins by confidence: 0.6 three times, never right; 0.8 three times, always right; 1 once, right.
    assert measured.overall["expected_calibration_error"] == pytest.approx((3 * 0.6 + 3 * 0.2 + 0) / 7)


def test_certainty_has_the_promises_and_what_held():
    """The 60 held-out rows of probability 0.9 are right; 10 of the 37 rows of probability 0.6 are wrong."""
    thresholds = measures.find_thresholds(np.repeat([0.9, 0.6], [60, 37]), np.arange(97) < 87)
    assert thresholds == {0.05: 0.9, 0.1: 0.9, 0.2: 0.6}, "smaller promises cannot be certified"
    confidence_Q = np.array([0.95, 0.9, 0.9, 0.89, 0.6, 0.5, 0.5])
    p_QC = np.stack([confidence_Q, 1 - confidence_Q], -1)
    measured = Measures(("a", "b"), np.array([0, 0, 1, 1, 0, 1, 0]), np.zeros(7, int), p_QC)
    certainty = measured.certainty(thresholds)
    assert {"max_error": 0.05, "probability": 0.9, "rows": 3, "wrong": 1} in certainty
    assert {"max_error": 0.2, "probability": 0.6, "rows": 5, "wrong": 2} in certainty
    assert measures.list_certainty(certainty).rows[-2] == ("0.6000", "5", "40.0\u00a0% (2)", "20\u00a0%")
    none_answered = Measures(("a", "b"), np.array([0]), np.array([0]), np.array([[0.4, 0.6]]))
    assert measures.list_certainty(none_answered.certainty({0.2: 0.9})).rows[0] == ("0.9000", "0", "–", "20\u00a0%")


def test_classes_are_listed_by_f1_and_the_most_confused_pairs_by_rows(measured, monkeypatch):
    listed = [(row[0], row[-1]) for row in measures.list_classes(measured).rows]
    assert listed == [("c", "0.0\u00a0%"), ("b", "50.0\u00a0%"), ("a", "66.7\u00a0%")]
    without = dataclasses.replace(measured, y_Q=np.minimum(measured.y_Q, 1))
    assert [row[0] for row in measures.list_classes(without).rows] == ["b", "a"], "c has no rows"
    monkeypatch.setattr(measures, "_MAX_PAIRS", 1)
    skewed = dataclasses.replace(measured, predicted_Q=np.array([0, 2, 2, 1, 0, 2, 0]))
    assert measures.list_confusions(skewed).rows == (("a", "c", "2", "50.0\u00a0%"),)
