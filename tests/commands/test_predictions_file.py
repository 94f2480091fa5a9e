"""Predictions as JSON lines and as CSV; a file of them appears when it is complete, and resumes at any point."""

import csv
import datetime
import json

import numpy as np
import pytest

from knnprompt_jax.classifier.arguments import Predictions
from knnprompt_jax.commands import predictions_file
from knnprompt_jax.commands.predictions_file import FileOutput
from knnprompt_jax.tasks.task import Example

PREDICTIONS = Predictions(
    labels=np.array(["ünder", None], object),
    probabilities=np.array([[0.0, 1 / 3, 2 / 3], [0.25, 0.5, 0.25]], np.float32),
    distances=np.array([[0.1, 12345.678], [3e-8, 0.5]], np.float32),
    ids=np.array([[7, 10**12], [0, 1]]),
    novelty=np.array([1 / 3, 1.0]),
)
CLASSES = ["=SUM(A1)", "over", "ünder"]


def written(kind, **options):
    """The records that are read back, with copied columns that need care."""
    extra = {"label": "=x", "input_label": [1, {"a": float("inf")}], "odd": "\ud83d\r"}
    extra["date"] = datetime.date(2026, 1, 2)
    rows = [Example({}, "", number, extra=extra) for number in (4, 6)]
    form = predictions_file.Format(kind, CLASSES, (*extra, "missing"), **options)
    content = (form.header() + form.lines(rows, PREDICTIONS)).decode("utf-8-sig")
    if kind == "csv":
        return list(csv.DictReader(content.split("\n")[:-1]))
    return [json.loads(line) for line in content.splitlines()]


COPIED = {"input_label": "=x", "input_input_label": [1, {"a": None}], "odd": "\ud83d\r", "date": "2026-01-02"}


def test_json_lines():
    first, second = written("jsonl", probabilities=True, neighbours=True)
    own = {"label": "ünder", "probability": 0.6666667, "novelty": 0.3333333}
    near = [{"id": 7, "distance": 0.1}, {"id": 10**12, "distance": 12345.68}]
    shares = {"=SUM(A1)": 0.0, "over": 0.3333333, "ünder": 0.6666667}
    assert first == {"row": 4, **COPIED, "missing": None, **own, "neighbours": near, "probabilities": shares}
    assert list(first)[:2] == ["row", "input_label"]
    assert (second["label"], second["probability"]) == (None, 0.5), "that of the likeliest class"
    assert list(written("jsonl")[0]) == ["row", *COPIED, "missing", "label", "probability", "novelty"]


def test_csv_runs_no_formulas():
    first, second = written("csv", probabilities=True, neighbours=True)
    cells = {"row": "4", "input_label": "'=x", "input_input_label": '[1, {"a": null}]', "odd": "\\ud83d\r"}
    cells |= {"date": "2026-01-02", "missing": "", "label": "ünder", "probability": "0.6666667", "novelty": "0.3333333"}
    shares = {"probability_=SUM(A1)": "0.0", "probability_over": "0.3333333", "probability_ünder": "0.6666667"}
    near = '[{"id": 7, "distance": 0.1}, {"id": 1000000000000, "distance": 12345.68}]'
    assert first == {**cells, "neighbours": near, **shares} and second["label"] == ""
    assert list(written("csv")[0]) == list(cells)


@pytest.mark.parametrize("damage", ["job", "note", "none", "short"])
def test_only_a_whole_draft_of_the_same_job_is_resumed(tmp_path, damage, capsys):
    """Even if the other job dies before its first batch, and the first job is run again."""
    path = tmp_path / "out.csv"
    draft = path.parent / ".out.csv.writing"
    note = path.parent / ".out.csv.progress"
    FileOutput(path, "job", b"header\n").write(b"one\n", 3)
    job = "other" if damage == "job" else "job"
    if damage == "note":
        note.write_text("{")
    elif damage == "none":
        note.unlink()
    elif damage == "short":
        draft.write_bytes(b"header\no")
    anew = FileOutput(path, job, b"HEADER\n")
    assert anew.rows == 0 and draft.read_bytes() == b"HEADER\n" and "starting anew" in capsys.readouterr().err
    assert FileOutput(path, "third", b"").rows == 0
