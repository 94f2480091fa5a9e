"""Predictions as JSON lines and as CSV, byte by byte."""

import csv
import dataclasses
import datetime
import json

import numpy as np
import pytest
from absl import logging

from knnprompt_jax.classifier.inputs import Predictions
from knnprompt_jax.commands import predictions_format
from knnprompt_jax.tasks.task import Example

PREDICTIONS = Predictions(
    labels=np.array(["ünder", "=SUM(A1)"]),
    probabilities=np.array([[0.0, 1 / 3, 2 / 3], [1.0, 0.0, 0.0]], np.float32),
    distances=np.array([[0.1, 12345.678], [3e-8, 0.5]], np.float32),
    ids=np.array([[7, 10**12], [0, 1]]),
    novelty=np.array([1 / 3, 1.0]),
)
CLASSES = ["=SUM(A1)", "over", "ünder"]


def rows(*numbers, **other):
    return [Example({}, "", number, extra=other) for number in numbers]


def form(kind, all_probabilities=False, kept=(), classes=CLASSES):
    return predictions_format.Format(kind, tuple(classes), all_probabilities, kept, has_neighbours=True)


def test_json_lines():
    assert form("jsonl", True).header() == b""
    assert form("jsonl").lines(rows(4, 6), PREDICTIONS).decode() == (
        '{"row": 4, "label": "ünder", "probability": 0.6666667, "novelty": 0.3333333, "neighbours": '
        '[{"id": 7, "distance": 0.1}, {"id": 1000000000000, "distance": 12345.68}]}\n'
        '{"row": 6, "label": "=SUM(A1)", "probability": 1.0, "novelty": 1.0, "neighbours": '
        '[{"id": 0, "distance": 3e-08}, {"id": 1, "distance": 0.5}]}\n'
    )
    last = form("jsonl", True).lines(rows(4, 6), PREDICTIONS).decode().splitlines()[0]
    assert last.endswith(', "probabilities": {"=SUM(A1)": 0.0, "over": 0.3333333, "ünder": 0.6666667}}')


def test_numbers_that_json_cannot_write_are_null():
    row = Example({}, "", 0, extra={"id": [float("nan"), {"a": float("inf"), "b": 1.5}]})
    assert json.loads(form("jsonl", kept=("id",), classes=["over"]).lines([row], one("over")))["id"] == [
        None,
        {"a": None, "b": 1.5},
    ]


def test_csv():
    assert form("csv", True).header().decode() == (
        "row,label,probability,novelty,neighbours,distances,probability_=SUM(A1),probability_over,probability_ünder\n"
    )
    assert form("csv").lines(rows(4, 6), PREDICTIONS).decode() == (
        "4,ünder,0.6666667,0.3333333,7 1000000000000,0.1 12345.68\n6,'=SUM(A1),1.0,1.0,0 1,3e-08 0.5\n"
    )
    assert form("csv", True).lines(rows(4, 6), PREDICTIONS).endswith(b"3e-08 0.5,1.0,0.0,0.0\n")


def test_neighbours_are_written_only_on_request():
    plain = predictions_format.Format("csv", tuple(CLASSES), True)
    header, line, _ = (plain.header() + plain.lines(rows(4, 6), PREDICTIONS)).decode().splitlines()
    assert header == "row,label,probability,novelty,probability_=SUM(A1),probability_over,probability_ünder"
    assert line == "4,ünder,0.6666667,0.3333333,0.0,0.3333333,0.6666667"
    (record, _) = predictions_format.Format("jsonl", tuple(CLASSES), False).lines(rows(4, 6), PREDICTIONS).splitlines()
    assert json.loads(record) == {"row": 4, "label": "ünder", "probability": 0.6666667, "novelty": 0.3333333}


def one(label, share=1.0):
    return Predictions(np.array([label]), np.array([[share]]), np.zeros((1, 1)), np.zeros((1, 1), int), np.ones(1))


def test_an_abstention_has_the_probability_of_the_likeliest_class():
    said = dataclasses.replace(one("a", 0.25), labels=np.array([None]))
    assert form("csv", classes=["a"]).lines(rows(0), said) == b"0,,0.25,1.0,0,0.0\n"
    assert (
        form("jsonl", classes=["a"]).lines(rows(0), said).startswith(b'{"row": 0, "label": null, "probability": 0.25')
    )


def test_kept_columns_come_first_and_clash_with_no_other():
    other = {"label": "=x", "input_label": [1, {"a": "b"}], "ticket id": None, "probability_a": "\ud83d", "z": 1}
    other |= {"nan": float("nan"), "date": datetime.date(2026, 1, 2)}
    kept = tuple(name for name in other if name != "z")
    wide = form("csv", True, kept, classes=["a", "b"])
    said = dataclasses.replace(one("a"), probabilities=np.array([[0.75, 0.25]]))
    header, line = (wide.header() + wide.lines(rows(5, **other), said)).decode().splitlines()
    assert header == (
        "row,input_label,input_input_label,ticket id,input_probability_a,nan,date,"
        "label,probability,novelty,neighbours,distances,probability_a,probability_b"
    )
    assert next(csv.reader([line]))[:8] == ["5", "'=x", '[1, {"a": "b"}]', "", "\\ud83d", "", "2026-01-02", "a"]
    record = json.loads(form("jsonl", False, kept, classes=["a", "b"]).lines(rows(5, **other), said))
    assert record["input_label"] == "=x" and record["input_input_label"] == [1, {"a": "b"}]
    assert record["ticket id"] is record["nan"] is None and record["label"] == "a"
    assert (record["input_probability_a"], record["date"]) == ("\ud83d", "2026-01-02")


@pytest.mark.parametrize(("keep", "copied"), [("ids", {"id"}), ("all", {"id", "z"}), ("none", set())])
def test_columns_that_only_later_rows_have_are_copied_or_reported(keep, copied, caplog):
    later = rows(5, id="B7", z=1)
    record = json.loads(predictions_format.Format("jsonl", ("a",), False, (), keep).lines(later, one("a")))
    assert record.keys() == {"row", "label", "probability", "novelty"} | copied
    predictions_format.Format("csv", ("a",), False, (), keep).lines(later, one("a"))
    assert ("row 5 has a column 'id' that the first row lacks" in caplog.text) == bool(copied)
    logging._log_counter_per_token.clear()


COLUMNS = ("ticket_id", "text", "label", "uuid", "ids")


@pytest.mark.parametrize(
    ("keep", "columns"),
    [("ids", ("ticket_id", "uuid")), ("all", COLUMNS), ("none", ()), ("label, ids,label", ("label", "ids"))],
)
def test_kept_columns_are_ids_or_named_ones(keep, columns):
    assert predictions_format.kept(keep, COLUMNS) == columns


def test_a_named_column_may_be_missing_in_the_first_of_rows_with_columns_of_their_own(caplog):
    assert predictions_format.kept("team,label", ("text", "label"), is_ragged=True) == ("team", "label")
    assert "--keep=team,label: the first row has no column 'team'" in caplog.text
