"""New files, predictions, classifiers and records with a fault at each call, and predictions killed repeatedly."""

import pathlib
import signal
import tempfile
import time

import pytest

import knnprompt_jax as kp
from knnprompt_jax.classifier import classifier_file
from knnprompt_jax.commands import predictions_file
from knnprompt_jax.common import files
from knnprompt_jax.report import records
from tests import processes
from tests.faults import injection
from tests.study.small_world import make_record

TWICE = pytest.mark.parametrize("twice", [False, pytest.param(True, marks=pytest.mark.long)], ids=["once", "twice"])

MEMORY = pathlib.Path("/dev/shm")


@pytest.fixture
def folder(tmp_path):
    """A folder in memory, where writing is fast."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else tmp_path) as name:
        yield pathlib.Path(name)


def contents(folder):
    """Return the content of each file that is no draft."""
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: content for name, content in found.items() if not name.startswith(".")}


def write_file(folder):
    with files.new_file(folder / "file") as draft:
        draft.write_bytes(b"new" * 5000)


def earlier_file(folder):
    (folder / "file").write_text("old")


@TWICE
@pytest.mark.parametrize("prepare", [lambda folder: None, earlier_file], ids=["new", "over an earlier one"])
def test_new_file(folder, prepare, twice):
    tally = injection.every_fault(folder, write_file, contents, prepare, twice=twice)
    assert tally.survived == tally.tried > 20


def predict(folder):
    """Write predictions as the job does, without a model."""
    path = folder / "out.jsonl"
    with files.lock(path):
        output = predictions_file.FileOutput(path, "job", b"header\n")
        for number in range(output.rows, 3):
            output.write(b"%d a prediction\n" % number, number + 1)
        output.finish()


@TWICE
def test_predictions(folder, twice):
    """A refusal means that the run died after the output was complete."""
    tally = injection.every_fault(folder, predict, contents, twice=twice)
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


TASK = kp.Task("talk", ("text",), "{text}\nIt is", ("0", "1"), ("said", "asked"))
TEXTS = ["a dog", "a cat", "why not", "who is it", "it rains", "is it", "so there"]


@pytest.fixture(scope="module")
def fitted(tiny):
    classifier = kp.KNNPrompting(tiny, TASK, k=1, demo_shots=1)
    return classifier.fit(TEXTS, [0, 0, 1, 1, 0, 1, 0])


@pytest.fixture(scope="module")
def other(fitted):
    return kp.KNNPrompting(fitted.model, TASK, k=1, demo_shots=0).fit(TEXTS[:3], [0, 1, 1])


@pytest.mark.parametrize("is_new", [True, False], ids=["new", "over another"])
def test_classifiers(fitted, other, folder, is_new):
    """A killed process leaves the earlier file or the new one."""
    prepare = lambda folder: is_new or fitted.save(folder / "classifier")  # noqa: E731
    writer = lambda folder: other.save(folder / "classifier", overwrite=True)  # noqa: E731
    reader = lambda folder: classifier_file.read(folder / "classifier").content  # noqa: E731
    tally = injection.every_fault(folder, writer, reader, prepare)
    assert tally.survived + tally.refused == tally.tried > 20 and tally.refused <= 1


def test_records(folder):
    record = make_record()
    tally = injection.every_fault(
        folder,
        lambda folder: records.write(folder / "results", record),
        lambda folder: records.read_all(folder / "results"),
        lambda folder: (folder / "results").mkdir(),
    )
    assert tally.survived == tally.tried > 10
