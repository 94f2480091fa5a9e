"""Measures of predictions, from numbers worked out by hand."""

import csv
import dataclasses
import io
import warnings

import numpy as np
import pytest

from knnprompt_jax import evaluation
from knnprompt_jax.report import measures
from knnprompt_jax.report.measures import Measures


@pytest.fixture
def measured() -> Measures:
    """Seven rows of three classes, of which the last is never predicted; four are right."""
    return Measures(
        labels=("a", "b", "c"),
        y_Q=np.array([0, 0, 0, 1, 1, 2, 0]),
        predicted_Q=np.array([0, 0, 1, 1, 0, 0, 0]),
        probabilities_QC=np.array(
            [
                [1.0, 0.0, 0.0],
                [0.8, 0.2, 0.0],
                [0.4, 0.6, 0.0],
                [0.2, 0.8, 0.0],
                [0.6, 0.2, 0.2],
                [0.6, 0.4, 0.0],
                [0.8, 0.1, 0.1],
            ]
        ),
    )


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
    assert measured.overall["impossible_rows"] == 1
    squares = [0, 0.08, 0.72, 0.08, 0.36 + 0.64 + 0.04, 0.36 + 0.16 + 1, 0.04 + 0.01 + 0.01]
    assert measured.overall["brier_score"] == pytest.approx(np.mean(squares))
    # Bins by confidence: 0.6 three times, never right; 0.8 three times, always right; 1 once, right.
    assert measured.overall["expected_calibration_error"] == pytest.approx((3 * 0.6 + 3 * 0.2 + 0) / 7)


def test_risk_and_coverage(measured):
    """Rows of equal probability are answered together."""
    np.testing.assert_allclose(measured.coverage, [(1.0, 1 / 7, 1.0), (0.8, 4 / 7, 1.0), (0.6, 1.0, 4 / 7)])
    np.testing.assert_allclose(measured.at_coverages([0.5, 0.5, 1.0]).coverage, [4 / 7, 1.0])


def test_csv_and_text(measured):
    lines = evaluation.to_csv(measured).splitlines()
    assert lines[0] == "measure,class,value"
    assert {"rows,,7", "rows,a,4", "precision,a,0.6", "recall,c,0.0", "impossible_rows,,1"} <= set(lines)
    assert "rows,'=1+1,4" in evaluation.to_csv(dataclasses.replace(measured, labels=("=1+1", "b", "c")))
    odd = evaluation.to_csv(dataclasses.replace(measured, labels=("x\ry", "b", "c")))
    assert {len(row) for row in csv.reader(io.StringIO(odd, newline=""))} == {3}
    assert "Wilson's 95 % interval: 25.0 to 84.2 %." in evaluation.describe(measured).replace("\u00a0", " ")


def test_a_class_without_rows_has_no_recall_and_one_without_predictions_no_precision(measured):
    without = dataclasses.replace(measured, y_Q=np.minimum(measured.y_Q, 1))
    assert measures.list_classes(without, without.labels).rows[2] == ("c", "0", "–", "–", "–")
    swapped = dataclasses.replace(measured, y_Q=measured.predicted_Q, predicted_Q=without.y_Q * 2)
    assert measures.list_classes(swapped, swapped.labels).rows[1][2:4] == ("–", "0.0\u00a0%")
    assert measures.list_classes(swapped, swapped.labels).rows[2][1:4] == ("0", "0.0\u00a0%", "–")


@pytest.mark.parametrize(("num_classes", "y", "predicted"), [(1, [0, 0], [0, 0]), (3, [2, 2], [2, 2]), (2, [0], [1])])
def test_a_single_class_gives_no_warnings(num_classes, y, predicted):
    labels = tuple("abc"[:num_classes])
    with warnings.catch_warnings(action="error"):
        measured = Measures(labels, np.array(y), np.array(predicted), np.eye(num_classes)[predicted])
        right = sum(map(int.__eq__, y, predicted))
        assert measured.overall["macro_f1"] == right / len(y) == measured.per_class["f1"].max()
        assert measured.confusion_CC.sum() == len(y) and measured.confusion_CC.trace() == right
        assert len(measured.calibration) == 1
