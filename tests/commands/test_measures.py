"""Measures of predictions, from numbers worked out by hand."""

import csv
import dataclasses
import io
import warnings

import numpy as np
import pytest

from knnprompt_jax.commands import evaluate_job
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
    lines = evaluate_job.to_csv(measured).splitlines()
    assert lines[0] == "measure,class,value"
    assert {"rows,,7", "rows,a,4", "precision,a,0.6", "recall,c,0.0", "impossible_rows,,1"} <= set(lines)
    assert "rows,'=1+1,4" in evaluate_job.to_csv(dataclasses.replace(measured, labels=("=1+1", "b", "c")))
    odd = evaluate_job.to_csv(dataclasses.replace(measured, labels=("x\ry", "b", "c")))
    assert {len(row) for row in csv.reader(io.StringIO(odd, newline=""))} == {3}
    padded = dataclasses.replace(measured, labels=("a", "a ", "c"))
    assert "\n'a ' " in evaluate_job.describe(padded) and "rows,a ,2" in evaluate_job.to_csv(padded)
    assert "Wilson's 95 % interval: 25.0 to 84.2 %." in evaluate_job.describe(measured).replace("\u00a0", " ")


def test_a_class_without_rows_has_no_recall_and_one_without_predictions_no_precision(measured):
    without = dataclasses.replace(measured, y_Q=np.minimum(measured.y_Q, 1))
    assert measures.list_classes(without, without.labels).rows[2] == ("c", "0", "–", "–", "–")
    swapped = dataclasses.replace(measured, y_Q=measured.predicted_Q, predicted_Q=without.y_Q * 2)
    classes = {row[0]: row for row in measures.list_classes(swapped, swapped.labels).rows}
    assert classes["b"][2:4] == ("–", "0.0\u00a0%")
    assert classes["c"][1:4] == ("0", "0.0\u00a0%", "–")


def test_classes_are_listed_by_f1_and_named_by_titles(measured):
    listed = [(row[0], row[-1]) for row in measures.list_classes(measured, ("A_x", "B", "C")).rows]
    assert listed == [("C", "0.0\u00a0%"), ("B", "50.0\u00a0%"), ("A_x", "66.7\u00a0%")]


def test_many_classes_have_their_most_confused_pairs_in_place_of_a_matrix(measured, monkeypatch):
    (matrix,) = measures.confusion(measured, measured.labels).matrices
    assert matrix.counts_CC == ((3, 1, 0), (1, 1, 0), (1, 0, 0))
    monkeypatch.setattr(measures, "_MAX_CLASSES", 2)
    section = measures.confusion(measured, measured.labels)
    assert not section.matrices
    pairs = [("a", "b", "1", "25.0\u00a0%"), ("b", "a", "1", "50.0\u00a0%"), ("c", "a", "1", "100.0\u00a0%")]
    assert list(section.listings[1].rows) == pairs
    monkeypatch.setattr(measures, "_MAX_PAIRS", 2)
    skewed = dataclasses.replace(measured, predicted_Q=np.array([0, 2, 2, 1, 0, 2, 0]))
    pairs = [("a", "c", "2", "50.0\u00a0%"), ("b", "a", "1", "50.0\u00a0%")]
    assert list(measures.confusion(skewed, skewed.labels).listings[1].rows) == pairs, "the last row is right"


def test_the_threshold_of_coverage_answers_the_rows_that_it_stands_for(measured):
    """Its digits are cut, not rounded: `--abstain` with a larger number would leave rows out."""
    p_QC = np.array([[0.7278, 0.2722, 0.0], [0.6667, 0.3333, 0.0], [0.5001, 0.4999, 0.0]])
    measured = Measures(("a", "b", "c"), np.array([0, 0, 1]), np.array([0, 0, 0]), p_QC)
    rows = evaluate_job._coverage(measured).rows
    assert [row[1] for row in rows] == ["0.666", "0.500"]
    assert all(np.mean(measured.confidence_Q >= float(row[1])) >= float(row[0][:-2]) / 100 - 1e-3 for row in rows)


@pytest.mark.parametrize(("num_classes", "y", "predicted"), [(1, [0, 0], [0, 0]), (3, [2, 2], [2, 2]), (2, [0], [1])])
def test_a_single_class_gives_no_warnings(num_classes, y, predicted):
    labels = tuple("abc"[:num_classes])
    with warnings.catch_warnings(action="error"):
        measured = Measures(labels, np.array(y), np.array(predicted), np.eye(num_classes)[predicted])
        right = sum(map(int.__eq__, y, predicted))
        assert measured.overall["macro_f1"] == right / len(y) == measured.per_class["f1"].max()
        assert measured.confusion_CC.sum() == len(y) and measured.confusion_CC.trace() == right
        assert len(measured.calibration) == 1
