"""From a saved classifier and rows to predictions: whole, after interruptions, through pipes, and with bad rows."""

import dataclasses
import itertools
import json

import pandas as pd
import pytest

from knnprompt_jax.classifier import classifier_file
from knnprompt_jax.cli import command_settings as commands
from knnprompt_jax.cli import shared_settings
from knnprompt_jax.commands import predict_job, unlabelled
from knnprompt_jax.common import errors, files
from knnprompt_jax.inference.lm import memory
from knnprompt_jax.study import job_inputs
from tests import processes


@pytest.fixture(scope="module")
def saved(demo_classifier, tmp_path_factory):
    path = tmp_path_factory.mktemp("prediction") / "saved"
    demo_classifier.save(path)
    return path


@pytest.fixture
def table(rows, tmp_path):
    path = tmp_path / "rows.csv"
    pd.DataFrame(rows).to_csv(path, index_label="id")
    return path


@pytest.fixture
def run(saved, table, demo_classifier, monkeypatch):
    """Runs of the job with small batches and a model that is loaded already."""
    monkeypatch.setattr(classifier_file.Saved, "load_model", lambda saved, mesh: demo_classifier.model)
    monkeypatch.setattr(unlabelled, "batch_characters", lambda model: 1500)

    def run(output, **options):
        places = {"classifier": str(saved), "input": str(table), "output": str(output)}
        return predict_job.run(commands.PredictionSettings(**places | options))

    return run


def test_the_smallest_model_axis_is_chosen_except_in_deterministic_mode(demo_classifier, monkeypatch):
    monkeypatch.setattr(memory, "model_axis", lambda config, dtype, step_tokens: 1)
    mesh, identity = shared_settings.SavedMesh(model=0), demo_classifier.model.identity
    assert job_inputs.choose_saved_mesh(mesh, identity)("the configuration").shape["model"] == 1
    with pytest.raises(errors.UserError, match="mesh.model=0: --deterministic"):
        job_inputs.choose_saved_mesh(mesh, dataclasses.replace(identity, deterministic=True))


def read(output):
    return [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]


def test_a_file_gets_the_predictions_of_the_classifier(demo_classifier, rows, run, tmp_path):
    done = run(tmp_path / "out.jsonl", probabilities=True, neighbours=True)
    assert (done.outcomes, done.earlier) == ({"answered": 180}, 0)
    records = read(tmp_path / "out.jsonl")
    wanted = demo_classifier.answer(rows)
    assert [record["row"] for record in records] == list(range(180))
    assert [record["label"] for record in records] == wanted.labels.tolist()
    assert [[one["id"] for one in record["neighbours"]] for record in records] == wanted.ids.tolist()
    for record, shares in zip(records, wanted.probabilities, strict=True):
        assert list(record["probabilities"].values()) == pytest.approx(shares.tolist(), abs=1e-6)
        assert record["probability"] == record["probabilities"][record["label"]]
    assert [record["id"] for record in records] == [str(number) for number in range(180)], "ids are copied"
    (tmp_path / "out.csv").write_text("an earlier file")
    run(tmp_path / "out.csv", keep="sentence", overwrite=True)
    cells = pd.read_csv(tmp_path / "out.csv", dtype=str, encoding="utf-8-sig")
    assert cells["sentence"].tolist() == [row["sentence"] for row in rows] and "id" not in cells
    assert cells["label"].tolist() == wanted.labels.tolist()


@pytest.fixture
def interrupted(run, monkeypatch):
    """Runs that are interrupted after their third batch."""

    def interrupt(output, **options):
        numbers = itertools.count()
        write = predict_job._write

        def interrupted_write(*batch):
            if next(numbers) == 3:
                raise KeyboardInterrupt
            write(*batch)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(predict_job, "_write", interrupted_write)
            run(output, **options)

    return interrupt


@pytest.mark.parametrize("name", ["out.csv", "out.jsonl"])
def test_an_interrupted_run_resumes_to_the_same_bytes(demo_classifier, run, interrupted, tmp_path, monkeypatch, name):
    monkeypatch.setenv("KNNPROMPT_CACHE", str(tmp_path / "cache"))
    run(tmp_path / f"whole_{name}")
    num_read = demo_classifier.model.statistics.prompts
    interrupted(tmp_path / name)
    done = run(tmp_path / name)
    assert demo_classifier.model.statistics.prompts == num_read, "states are cached"
    assert 0 < done.earlier < 180 and done.earlier + done.outcomes.total() == 180
    assert (tmp_path / name).read_bytes() == (tmp_path / f"whole_{name}").read_bytes()


def test_a_changed_input_or_option_starts_anew(run, interrupted, table, tmp_path, capsys):
    output = tmp_path / "out.jsonl"
    interrupted(output)
    table.write_bytes(table.read_bytes().replace(b"0,", b"00,", 1))
    interrupted(output)
    done = run(output, max_error=0.7)
    assert done.earlier == 0 and done.outcomes.total() == len(read(output)) == 180
    assert read(output)[0]["id"] == "00" and capsys.readouterr().err.count("starting anew") == 2


def test_rows_without_a_label_are_counted(run, tmp_path):
    done = run(tmp_path / "some.jsonl", max_error=0.7, reject_novel=0.3)
    outcomes = dict.fromkeys(("novel", "uncertain", "answered"), 0)
    for record in read(tmp_path / "some.jsonl"):
        outcome = "novel" if record["novelty"] <= 0.3 else "uncertain" if record["probability"] < 0.66 else "answered"
        outcomes[outcome] += 1
        assert (record["label"] is None) == (outcome != "answered")
    assert done.outcomes == outcomes and all(outcomes.values())
    with pytest.raises(errors.UserError, match="cannot be promised"):
        run(tmp_path / "none.jsonl", max_error=0.3)


def test_a_bad_row_is_refused_before_the_model_loads_or_skipped(run, table, tmp_path, monkeypatch):
    output = tmp_path / "out.jsonl"
    lines = table.read_bytes().splitlines(keepends=True)
    table.write_bytes(b"".join([*lines[:150], b"149,  \r\n", *lines[151:]]))
    with monkeypatch.context() as patch, pytest.raises(errors.UserError, match=":151: .*--on_bad=skip"):
        patch.setattr(classifier_file.Saved, "load_model", None)
        run(output)
    assert not output.exists()
    assert run(output, on_bad="skip").outcomes.total() == 179
    assert [record["row"] for record in read(output)] == [row for row in range(180) if row != 149]


@pytest.mark.parametrize(("kind", "content"), [("jsonl", ""), ("csv", "\ufeffrow,label,probability,novelty\n")])
def test_no_rows(run, table, tmp_path, kind, content):
    table.write_text("id,sentence\n")
    assert run(tmp_path / f"out.{kind}").outcomes.total() == 0
    assert (tmp_path / f"out.{kind}").read_text() == content


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"input": "-"}, "--input=-: choose its --format from csv, tsv, jsonl, txt"),
        ({"text": "x"}, "--input, --text: give a file of rows or one text"),
        ({"text": "x", "input": "", "on_bad": "skip"}, "--on_bad: has no effect with --text"),
        ({"output": "out.txt"}, "--output=out.txt: the name should end in .jsonl or .csv"),
        ({"keep": "id,team"}, "--keep=team: no such column; choose from id, sentence"),
        ({"reject_novel": 0.001}, "the smallest p-value"),
        ({"output": "rows.csv"}, "it is rows.csv, which would be lost"),
        ({"output": "taken.jsonl"}, "taken.jsonl: exists already"),
        ({"output": "busy.csv"}, "another process is writing to it"),
    ],
)
def test_mistakes_are_reported_before_the_model_loads(saved, table, tmp_path, monkeypatch, options, message):
    monkeypatch.setattr(classifier_file.Saved, "load_model", None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken.jsonl").touch()
    given = {"classifier": str(saved), "input": "rows.csv", "output": "new.jsonl", **options}
    with files.lock(tmp_path / "busy.csv"), pytest.raises(errors.UserError) as caught:
        predict_job.run(commands.PredictionSettings(**given))
    assert message in str(caught.value)


def test_one_text(demo_classifier, rows, run, capfdbinary):
    text = rows[3]["sentence"]
    run("-", input="", text=text, probabilities=True)
    record = json.loads(capfdbinary.readouterr().out)
    wanted = demo_classifier.answer([text])
    assert [record["label"]] == wanted.labels.tolist()
    assert list(record["probabilities"].values()) == pytest.approx(wanted.probabilities[0].tolist(), abs=1e-6)


@pytest.mark.long
def test_pipes(saved, tmp_path):
    """The binary between two pipes, whose reader leaves after the first line."""
    lines = tmp_path / "rows.txt"
    lines.write_text("one line of text\n" * 20_000)
    options = [f"--classifier={saved}", "--input=-", "--format=txt", "--output=-", "--neighbours"]
    with lines.open("rb") as file:
        process = processes.start("experiments/predict.py", *options, stdin=file)
        first = json.loads(process.stdout.readline())
        process.stdout.close()
        error = process.stderr.read()
        assert process.wait() == 0
    assert first["row"] == 0 and len(first["neighbours"]) == 3
    assert "rror" not in error
