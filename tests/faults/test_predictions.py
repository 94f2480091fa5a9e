"""Predictions with a fault at each call, and killed repeatedly."""

import signal
import time

import pytest

from knnprompt_jax.commands import predictions_file
from knnprompt_jax.common import files
from tests import processes
from tests.faults import injection

NAME = "out.jsonl"


def predict(folder):
    """Write predictions as the job does, without a model."""
    path = folder / NAME
    with files.lock(path):
        output = predictions_file.FileOutput(path, "job", b"header\n")
        for number in range(output.rows, 3):
            output.write(b"%d a prediction\n" % number, number + 1)
        output.finish()


def predicted(folder):
    path = folder / NAME
    return path.read_bytes() if path.exists() else None


@pytest.mark.parametrize("twice", [False, pytest.param(True, marks=pytest.mark.long)], ids=["once", "twice"])
def test_predictions(folder, twice):
    """A refusal means that the run died after the output was complete."""
    tally = injection.every_fault(folder, predict, predicted, twice=twice)
    assert tally.survived + tally.refused == tally.tried > 100
    assert tally.refused < 0.2 * tally.tried


@pytest.mark.long
def test_a_binary_that_is_killed_after_every_batch(tmp_path):
    """After kill -9 in each batch, the last run ends in the same bytes as an undisturbed run."""
    store, table = tmp_path / "store", tmp_path / "rows.txt"
    table.write_text("".join(f"text number {number * number} of many\n" for number in range(997)))
    fit = ("--task=demo", "--model=tiny", "--shots=5", "--demo_shots=1", "--experts=knn", f"--classifier={store}")
    processes.run("experiments/fit.py", *fit)
    options = [*processes.predict_in_small_batches(4000), f"--classifier={store}", f"--input={table}"]
    processes.run(*options, f"--output={tmp_path}/whole.jsonl")
    kills, note = 0, tmp_path / ".killed.jsonl.progress"
    while not (tmp_path / "killed.jsonl").exists():
        before = note.read_bytes() if note.exists() else b""
        process = processes.start(*options, f"--output={tmp_path}/killed.jsonl")
        while process.poll() is None and (not note.exists() or note.read_bytes() == before):
            time.sleep(0.01)
        process.kill()
        kills += process.wait() == -signal.SIGKILL
    assert kills > 5
    assert (tmp_path / "killed.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
