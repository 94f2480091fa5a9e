"""Predictions as JSON lines and as CSV, byte by byte."""

import numpy as np
import pytest

from knnprompt_jax.classifier.predictions import Predictions
from knnprompt_jax.prediction import writing

PREDICTIONS = Predictions(
    labels=np.array(["ünder", "=SUM(A1)"]),
    probabilities=np.array([[0.0, 1 / 3, 2 / 3], [1.0, 0.0, 0.0]], np.float32),
    distances=np.array([[0.1, 12345.678], [3e-8, 0.5]], np.float32),
    ids=np.array([[7, 10**12], [0, 1]]),
)
CLASSES = ["=SUM(A1)", "over", "ünder"]


def test_json_lines():
    assert writing.header("jsonl", CLASSES, True) == b""
    assert writing.lines("jsonl", [4, 6], PREDICTIONS, CLASSES, False).decode() == (
        '{"row": 4, "label": "ünder", "probability": 0.6666667, "neighbours": '
        '[{"id": 7, "distance": 0.1}, {"id": 1000000000000, "distance": 12345.68}]}\n'
        '{"row": 6, "label": "=SUM(A1)", "probability": 1.0, "neighbours": '
        '[{"id": 0, "distance": 3e-08}, {"id": 1, "distance": 0.5}]}\n'
    )
    last = writing.lines("jsonl", [4, 6], PREDICTIONS, CLASSES, True).decode().splitlines()[0]
    assert last.endswith(', "probabilities": {"=SUM(A1)": 0.0, "over": 0.3333333, "ünder": 0.6666667}}')


def test_csv():
    assert writing.header("csv", CLASSES, True).decode() == (
        "row,label,probability,neighbours,distances,probability of =SUM(A1),probability of over,probability of ünder\n"
    )
    assert writing.lines("csv", [4, 6], PREDICTIONS, CLASSES, False).decode() == (
        "4,ünder,0.6666667,7 1000000000000,0.1 12345.68\n6,'=SUM(A1),1.0,0 1,3e-08 0.5\n"
    )
    assert writing.lines("csv", [4, 6], PREDICTIONS, CLASSES, True).endswith(b"3e-08 0.5,1.0,0.0,0.0\n")


@pytest.mark.parametrize(
    ("label", "cell"),
    [("-1", "-1"), ("+2.5", "+2.5"), ("@x", "'@x"), ("-x", "'-x"), ("\tx", "'\tx"), ("a=b", "a=b"), ('"', '""""')],
)
def test_labels_are_no_formulas(label, cell):
    prediction = Predictions(np.array([label]), np.ones((1, 1)), np.zeros((1, 1)), np.zeros((1, 1), int))
    assert writing.lines("csv", [0], prediction, [label], False).decode() == f"0,{cell},1.0,0,0.0\n"


def test_labels_keep_their_type():
    prediction = Predictions(np.array([3]), np.ones((1, 1)), np.zeros((1, 1)), np.zeros((1, 1), int))
    assert writing.lines("jsonl", [0], prediction, [3], True).startswith(b'{"row": 0, "label": 3, ')
