"""An output file appears when it is complete; an interrupted run is resumed at any point."""

import functools
import json
import os

import pytest

from knnprompt_jax import errors
from knnprompt_jax.commands import predictions_file
from knnprompt_jax.tasks.task import Example
from tests.commands.conftest import failure

PLAN = {"store": ["s"], "probabilities": False}
ROWS = [Example({"text": text}, "", number, extra={"id": number}) for number, text in enumerate("abcdef")]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out.jsonl"


def unfinished(output, examples=ROWS, source="rows.csv"):
    return list(output.unfinished(functools.partial(iter, examples), source))


@pytest.mark.parametrize("bad", [None, 1])
def test_other_rows_are_refused_or_begin_anew(path, bad):
    """A row that was bad, and so left out, counts as another row where it is good."""
    predictions_file.FileOutput(path, PLAN).write(b"one\n", [row for row in ROWS[:3] if row.row != bad])
    begins = "rows.csv: its first 3 rows are not those labelled already: choose another output"
    others = [ROWS[1:], ROWS[:2], [ROWS[0], Example({"text": "x"}, "", 1), *ROWS[2:]], [] if bad is None else ROWS]
    for examples in others:
        assert failure(unfinished, predictions_file.FileOutput(path, PLAN), examples).startswith(begins)
    pipe = path.parent / "pipe"
    os.mkfifo(pipe)
    for source, name in (("-", "standard input"), (str(pipe), str(pipe))):
        piped = predictions_file.FileOutput(path, PLAN, overwrite=True)
        assert failure(unfinished, piped, ROWS[1:], source).startswith(f"{name}: its first 3 rows")
    pipe.unlink()
    assert unfinished(predictions_file.FileOutput(path, PLAN, overwrite=True), ROWS[1:]) == ROWS[1:]
    assert not list(path.parent.iterdir())


def test_a_run_with_another_plan_is_refused_or_dropped(path):
    path.write_bytes(b"old\n")
    other = {"store": ["t"], "probabilities": True}
    predictions_file.FileOutput(path, other, overwrite=True).write(b"one\n", ROWS[:3])
    assert predictions_file.FileOutput(path, other, overwrite=True).progress.rows == 3 and path.read_bytes() == b"old\n"
    path.unlink()
    assert "an unfinished run had another --store, --probabilities: choose another file" in failure(
        predictions_file.FileOutput, path, PLAN
    )
    assert predictions_file.FileOutput(path, PLAN, overwrite=True).progress.rows == 0 and not list(
        path.parent.iterdir()
    )


def test_two_runs_exclude_each_other(path):
    with (
        predictions_file.opened(str(path), PLAN),
        pytest.raises(errors.UserError, match="another process is writing to it"),
    ):
        predictions_file.opened(str(path), PLAN).__enter__()


def test_standard_output_counts_rows_and_not_predictions(capfdbinary):
    output = predictions_file.Output()
    output.write(b"one\nfour\n", [ROWS[0], ROWS[3]])
    assert (output.progress.rows, output.progress.predictions) == (
        4,
        2,
    ) and capfdbinary.readouterr().out == b"one\nfour\n"


@pytest.mark.parametrize("note", ["{", "[" * 10**5, "[]", "null", json.dumps({"plan": PLAN})])
def test_runs_whose_note_is_none_are_refused(path, note):
    predictions_file.FileOutput(path, PLAN).write(b"one\n", ROWS[:3])
    (path.parent / ".out.jsonl.progress").write_text(note)
    refuses_damage(path)


@pytest.mark.parametrize("change", [{"outcomes": ["answered"]}, {"bytes": 0}, {"bytes": 3}, {"bytes": -1}])
def test_runs_whose_note_has_other_counts_are_refused(path, change):
    predictions_file.FileOutput(path, PLAN).write(b"one\n", ROWS[:3])
    note = path.parent / ".out.jsonl.progress"
    note.write_text(json.dumps(json.loads(note.read_text()) | change))
    refuses_damage(path)


@pytest.mark.parametrize("content", [b"on", b"", b"onE\n"])
def test_runs_whose_output_is_damaged_are_refused(path, content):
    predictions_file.FileOutput(path, PLAN).write(b"one\n", ROWS[:3])
    (path.parent / ".out.jsonl.writing").write_bytes(content)
    refuses_damage(path)


def test_what_follows_the_finished_output_is_dropped(path, monkeypatch):
    monkeypatch.setattr(predictions_file, "_BLOCK", 3)
    predictions_file.FileOutput(path, PLAN).write(b"one\n", ROWS[:3])
    with (path.parent / ".out.jsonl.writing").open("ab") as file:
        file.write(b"half a li")
    resumed = predictions_file.FileOutput(path, PLAN)
    assert unfinished(resumed) == ROWS[3:]
    resumed.write(b"two\n", ROWS[3:])
    predictions_file.FileOutput(path, PLAN).finish()
    assert path.read_bytes() == b"one\ntwo\n"


def refuses_damage(path):
    draft, progress = path.parent / ".out.jsonl.writing", path.parent / ".out.jsonl.progress"
    message = failure(predictions_file.FileOutput, path, PLAN)
    assert message == f"{path}: an unfinished run is damaged: remove {draft} and {progress} to start anew"
