"""Predictions with a fault at each call, on a full disk, and killed repeatedly."""

import signal
import subprocess
import time

import pytest

from knnprompt_jax import errors
from knnprompt_jax.prediction import outputs
from knnprompt_jax.tasks.task import Example
from tests import processes
from tests.faults import injection

NAME = "out.jsonl"


def predict(folder, batches=3, line=b"a prediction\n"):
    """Write predictions as the job does, without a model."""
    with outputs.opened(str(folder / NAME), {"store": "s"}) as output:
        for number in range(output.num_rows, batches):
            output.write(b"%d %s" % (number, line), [Example({}, "", number)])
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


@pytest.fixture
def disk(tmp_path):
    """Return a function that mounts a file system in memory, or remounts it with other options."""

    def mount(options):
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(tmp_path)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("no file system may be mounted here")
        return tmp_path

    yield mount
    subprocess.run(["umount", str(tmp_path)], capture_output=True, check=False)


def test_a_full_disk_loses_nothing(disk, tmp_path):
    line = b"x" * 5000 + b"\n"
    folder = disk("size=48k")
    with pytest.raises(errors.UserError) as caught:
        predict(folder, 13, line)
    assert str(folder) in str(caught.value) and "No space left on device" in str(caught.value)
    assert not (folder / NAME).exists()
    disk("remount,size=512k")
    with outputs.opened(str(folder / NAME), {"store": "s"}) as output:
        assert output.num_rows > 2
    predict(folder, 13, line)
    assert predicted(folder) == b"".join(b"%d %s" % (number, line) for number in range(13))


def test_a_folder_that_is_read_only(disk):
    folder = disk("ro")
    with pytest.raises(errors.UserError) as caught:
        predict(folder)
    assert str(caught.value) == f"{folder}/{NAME}: Read-only file system"


@pytest.mark.long
def test_a_binary_that_is_killed_after_every_batch(tmp_path):
    """After kill -9 in each batch, the last run ends in the same bytes as an undisturbed run."""
    store, table = tmp_path / "store", tmp_path / "rows.txt"
    table.write_text("".join(f"text number {number * number} of many\n" for number in range(997)))
    fit = ("--task=demo", "--model=tiny", "--shots=5", "--demo_shots=1", "--rule=knn", f"--store={store}")
    processes.run("experiments/fit.py", *fit)
    options = ["experiments/predict.py", f"--store={store}", f"--input={table}", "--characters=4000"]
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
