"""An output file appears when it is whole; what a run leaves that dies at any moment is gone on with."""

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


def test_nothing_is_there_before_the_end(path):
    output = outputs.FileOutput(path, PLAN)
    assert output.write(b"one\n", MARKS[0], (8, 16)) and output.write(b"two\n", MARKS[1], (8, 24))
    assert not path.exists()
    output.finish()
    assert [one.name for one in path.parent.iterdir()] == ["out.jsonl"] and path.read_bytes() == b"one\ntwo\n"
    assert failure(outputs.FileOutput, path, PLAN) == f"{path}: exists already; choose another file, or overwrite it"


@pytest.mark.parametrize("torn", [b"", b"tw", b"two\n"], ids=["before", "within", "after"])
def test_what_was_not_noted_is_written_again(path, torn):
    """The process dies before, within and after writing a batch, and before the note of it."""
    first = outputs.FileOutput(path, PLAN)
    first.kept = ("id", "a b")
    first.write(b"one\n", MARKS[0], (8, 16), 2)
    with (path.parent / ".out.jsonl.writing").open("ab") as file:
        file.write(torn)
    output = outputs.FileOutput(path, PLAN)
    assert (output.mark, output.reads, output.by_rounding, output.kept) == (MARKS[0], (8, 16), 2, ("id", "a b"))
    output.write(b"two\n", MARKS[1], (8, 24))
    output.finish()
    assert path.read_bytes() == b"one\ntwo\n"


def test_a_run_that_died_before_its_first_note_starts_anew(path, caplog):
    (path.parent / ".out.jsonl.writing").write_bytes(b"half a l")
    output = outputs.FileOutput(path, PLAN)
    assert f"{path}: a run that died left no note of what it had finished: starting anew" in caplog.text
    assert not list(path.parent.iterdir())  # So that mistakes told before the first batch leave nothing behind.
    output.write(b"one\n", MARKS[0], (8, 16))
    output.finish()
    assert path.read_bytes() == b"one\n"


def test_unfinished_runs_of_another_plan(path):
    outputs.FileOutput(path, PLAN).write(b"one\n", MARKS[0], (8, 16))
    assert "an unfinished run differs in store, probabilities: choose another file" in failure(
        outputs.FileOutput, path, {"store": ["t"], "probabilities": True}
    )


def test_overwriting_goes_on_after_its_own_beginning_and_drops_another_plans(path):
    path.write_bytes(b"old\n")
    other = {"store": ["t"], "probabilities": True}
    outputs.FileOutput(path, other, overwrite=True).write(b"one\n", MARKS[0], (8, 16))
    assert outputs.FileOutput(path, other, overwrite=True).mark == MARKS[0] and path.read_bytes() == b"old\n"
    output = outputs.FileOutput(path, PLAN, overwrite=True)
    assert output.mark.rows == 0
    assert [left.name for left in path.parent.iterdir()] == ["out.jsonl"]
    output.write(b"new\n", MARKS[0], (8, 16))
    output.finish()
    assert path.read_bytes() == b"new\n"


def change(text, **values):
    return json.dumps({**json.loads(text), **values})


@pytest.mark.parametrize(
    ("alter", "message"),
    [
        (lambda text: "{", "not JSON"),
        (lambda text: "[" * 10**5, "not JSON"),
        (lambda text: "[]", "altered"),
        (lambda text: "null", "altered"),
        (lambda text: json.dumps({"plan": PLAN}), "altered"),
        (lambda text: text.replace('"bytes": 4', '"bytes": 3'), "altered"),
        (lambda text: change(text, rows=2), "altered"),
        (lambda text: change(text, reads="many"), "altered"),
        (lambda text: change(text, plan=None), "altered"),
    ],
)
def test_notes_that_were_altered(path, alter, message):
    outputs.FileOutput(path, PLAN).write(b"one\n", MARKS[0], (8, 16))
    draft, progress = path.parent / ".out.jsonl.writing", path.parent / ".out.jsonl.progress"
    text = progress.read_text()
    progress.write_text(alter(text))
    assert progress.read_text() != text
    told = failure(outputs.FileOutput, path, PLAN)
    assert told.startswith(f"{progress}: {message}") and told.endswith(f"remove {draft} and {progress} to start anew")


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "missing"), (b"on", "truncated or altered"), (b"onE\n", "truncated or altered")],
)
def test_drafts_that_were_altered(path, content, message):
    outputs.FileOutput(path, PLAN).write(b"one\n", MARKS[0], (8, 16))
    draft = path.parent / ".out.jsonl.writing"
    draft.unlink() if content is None else draft.write_bytes(content)
    assert failure(outputs.FileOutput, path, PLAN).startswith(f"{draft}: {message}")


def test_every_bit_of_what_is_left_counts(path):
    """A bit that flips in the note or in the finished lines is told, and what follows these does not matter."""
    outputs.FileOutput(path, PLAN).write(b"one\n", MARKS[0], (8, 16))
    for left in (path.parent / ".out.jsonl.writing", path.parent / ".out.jsonl.progress"):
        content = left.read_bytes()
        for bit in range(8 * len(content)):
            flipped = bytearray(content)
            flipped[bit // 8] ^= 1 << bit % 8
            left.write_bytes(flipped)
            failure(outputs.FileOutput, path, PLAN)
        left.write_bytes(content)
    assert outputs.FileOutput(path, PLAN).mark == MARKS[0]


def test_a_run_that_died_when_all_was_done(path):
    output = outputs.FileOutput(path, PLAN)
    output.write(b"one\n", MARKS[0], (8, 16))
    note = (path.parent / ".out.jsonl.progress").read_bytes()
    output.finish()
    (path.parent / ".out.jsonl.progress").write_bytes(note)
    assert "exists already" in failure(outputs.FileOutput, path, PLAN)
    assert [left.name for left in path.parent.iterdir()] == ["out.jsonl"]


def test_one_process_writes_at_a_time(path):
    with outputs.to_file(path, PLAN) as output:
        output.write(b"one\n", MARKS[0], (8, 16))
        with (
            pytest.raises(errors.UserError, match="out.jsonl: another process is writing to it"),
            outputs.to_file(path, PLAN),
        ):
            pass
        output.write(b"two\n", MARKS[1], (8, 16))
        output.finish()
    assert path.read_bytes() == b"one\ntwo\n"
