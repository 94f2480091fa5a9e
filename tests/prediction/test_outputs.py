"""An output file appears when it is complete; an interrupted run is resumed at any point."""

import json

import pytest

from knnprompt_jax import errors
from knnprompt_jax.prediction import outputs, rows
from tests.prediction.conftest import failure

PLAN = {"store": ["s"], "probabilities": False}
MARKS = [rows.Mark(3, "three"), rows.Mark(5, "five")]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out.jsonl"


def test_the_file_appears_at_the_end(path):
    output = outputs.FileOutput(path, PLAN)
    assert output.write(b"one\n", MARKS[0]) and output.write(b"two\n", MARKS[1])
    assert not path.exists()
    output.finish()
    assert [one.name for one in path.parent.iterdir()] == ["out.jsonl"] and path.read_bytes() == b"one\ntwo\n"
    assert failure(outputs.FileOutput, path, PLAN) == f"{path}: exists already; choose another file, or --overwrite it"


@pytest.mark.parametrize("torn", [b"", b"tw", b"two\n"], ids=["before", "within", "after"])
def test_a_batch_without_a_note_is_written_again(path, torn):
    """The process dies before, within and after writing a batch, and before the note of it."""
    first = outputs.FileOutput(path, PLAN)
    first.kept = ("id", "a b")
    first.write(b"one\n", MARKS[0])
    with (path.parent / ".out.jsonl.writing").open("ab") as file:
        file.write(torn)
    output = outputs.FileOutput(path, PLAN)
    assert (output.mark, output.kept) == (MARKS[0], ("id", "a b"))
    output.write(b"two\n", MARKS[1])
    output.finish()
    assert path.read_bytes() == b"one\ntwo\n"


def test_a_run_that_died_before_its_first_note_starts_anew(path):
    (path.parent / ".out.jsonl.writing").write_bytes(b"half a l")
    output = outputs.FileOutput(path, PLAN)
    assert not list(path.parent.iterdir())
    output.write(b"one\n", MARKS[0])
    output.finish()
    assert path.read_bytes() == b"one\n"


def test_a_run_with_another_plan_is_refused_or_dropped(path):
    path.write_bytes(b"old\n")
    other = {"store": ["t"], "probabilities": True}
    outputs.FileOutput(path, other, overwrite=True).write(b"one\n", MARKS[0])
    assert outputs.FileOutput(path, other, overwrite=True).mark == MARKS[0] and path.read_bytes() == b"old\n"
    path.unlink()
    assert "an unfinished run differs in store, probabilities: choose another file" in failure(
        outputs.FileOutput, path, PLAN
    )
    output = outputs.FileOutput(path, PLAN, overwrite=True)
    assert output.mark.rows == 0 and not list(path.parent.iterdir())
    output.write(b"new\n", MARKS[0])
    output.finish()
    assert path.read_bytes() == b"new\n"


@pytest.mark.parametrize("note", ["{", "[" * 10**5, "[]", "null", json.dumps({"plan": PLAN}), None])
def test_damaged_runs_are_refused(path, note):
    """A note that is none, or fewer bytes than it counts."""
    outputs.FileOutput(path, PLAN).write(b"one\n", MARKS[0])
    draft, progress = path.parent / ".out.jsonl.writing", path.parent / ".out.jsonl.progress"
    if note is None:
        draft.write_bytes(b"on")
    else:
        progress.write_text(note)
    message = failure(outputs.FileOutput, path, PLAN)
    assert message == f"{path}: an unfinished run is damaged: remove {draft} and {progress} to start anew"


def test_a_run_that_died_when_everything_was_finished(path):
    output = outputs.FileOutput(path, PLAN)
    output.write(b"one\n", MARKS[0])
    note = (path.parent / ".out.jsonl.progress").read_bytes()
    output.finish()
    (path.parent / ".out.jsonl.progress").write_bytes(note)
    assert "exists already" in failure(outputs.FileOutput, path, PLAN)
    assert [left.name for left in path.parent.iterdir()] == ["out.jsonl"]


def test_one_process_writes_at_a_time(path):
    with outputs.to_file(path, PLAN) as output:
        output.write(b"one\n", MARKS[0])
        with pytest.raises(errors.UserError, match="another process is writing to it"), outputs.to_file(path, PLAN):
            pass
        output.finish()
    assert path.read_bytes() == b"one\n"
