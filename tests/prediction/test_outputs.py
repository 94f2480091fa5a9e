"""An output file appears when it is whole; what a run leaves that dies at any moment is gone on with."""

import json

import pytest

from knnprompt_jax.prediction import outputs, rows
from tests.prediction.conftest import failure

PLAN = {"store": ["s"], "probabilities": False}
MARKS = [rows.Mark(3, "three"), rows.Mark(5, "five")]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out.jsonl"


def test_nothing_is_there_before_the_end(path):
    output = outputs.FileOutput(path, PLAN)
    assert output.write(b"one\n", MARKS[0], (8, 16)) and output.write(b"two\n", MARKS[1], (8, 24))
    assert not path.exists()
    output.finish()
    assert [one.name for one in path.parent.iterdir()] == ["out.jsonl"] and path.read_bytes() == b"one\ntwo\n"
    assert failure(outputs.FileOutput, path, PLAN) == f"{path}: exists already; choose another file, or remove it"


@pytest.mark.parametrize("torn", [b"", b"tw", b"two\n"], ids=["before", "within", "after"])
def test_what_was_not_noted_is_written_again(path, torn):
    """The process dies before, within and after writing a batch, and before the note of it."""
    outputs.FileOutput(path, PLAN).write(b"one\n", MARKS[0], (8, 16))
    with (path.parent / ".out.jsonl.writing").open("ab") as file:
        file.write(torn)
    output = outputs.FileOutput(path, PLAN)
    assert (output.mark, output.reads) == (MARKS[0], (8, 16))
    output.write(b"two\n", MARKS[1], (8, 24))
    output.finish()
    assert path.read_bytes() == b"one\ntwo\n"


def test_a_run_that_died_before_its_first_note_starts_anew(path):
    (path.parent / ".out.jsonl.writing").write_bytes(b"half a l")
    output = outputs.FileOutput(path, PLAN)
    assert not list(path.parent.iterdir())  # So that mistakes told before the first batch leave nothing behind.
    output.write(b"one\n", MARKS[0], (8, 16))
    output.finish()
    assert path.read_bytes() == b"one\n"


def test_unfinished_runs_that_do_not_fit(path):
    outputs.FileOutput(path, PLAN).write(b"one\n", MARKS[0], (8, 16))
    progress = path.parent / ".out.jsonl.progress"
    assert "an unfinished run differs in store, probabilities: choose another file" in failure(
        outputs.FileOutput, path, {"store": ["t"], "probabilities": True}
    )
    (path.parent / ".out.jsonl.writing").write_bytes(b"on")
    assert "has 2 bytes, and 4 were written: remove" in failure(outputs.FileOutput, path, PLAN)
    for damaged in ("{", "[]", json.dumps({"plan": PLAN})):
        progress.write_text(damaged)
        assert f"{progress}: damaged: " in failure(outputs.FileOutput, path, PLAN)


def test_a_folder_that_is_not_there(path):
    assert "there is no folder" in failure(outputs.FileOutput, path.parent / "none" / "out.jsonl", PLAN)
