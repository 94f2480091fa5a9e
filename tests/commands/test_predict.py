"""From a saved classifier and rows to predictions: whole, after kills, through pipes, and with bad rows."""

import collections
import csv
import json
import signal
import subprocess
import sys
import time

import pytest

from knnprompt_jax import errors
from knnprompt_jax.classifier import saving
from knnprompt_jax.commands import predict_job
from knnprompt_jax.settings import commands
from tests import processes
from tests.commands.conftest import failure


@pytest.fixture
def table(rows, tmp_path):
    path = tmp_path / "rows.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["id", "sentence"])
        writer.writeheader()
        writer.writerows({"id": number, **row} for number, row in enumerate(rows))
    return path


def settings(saved, table, output, **options):
    places = {"classifier": str(saved), "input": str(table), "output": str(output)}
    return commands.PredictionSettings(**places, **{"characters": 1500, **options})


def labels(output):
    records = [json.loads(line) for line in output.read_text().splitlines()]
    return {record["row"]: record["label"] for record in records}


@pytest.mark.usefixtures("loaded")
def test_a_file_gets_the_predictions_of_the_classifier(classifier, rows, saved, table, tmp_path):
    done = predict_job.run(settings(saved, table, tmp_path / "out.jsonl", probabilities=True, neighbours=True))
    assert (done.rows, done.earlier) == (180, 0)
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    wanted = classifier.answer(rows)
    assert [record["row"] for record in records] == list(range(180))
    assert [record["label"] for record in records] == wanted.labels.tolist()
    assert [[one["id"] for one in record["neighbours"]] for record in records] == wanted.ids.tolist()
    for record, shares in zip(records, wanted.probabilities, strict=True):
        assert list(record["probabilities"].values()) == pytest.approx(shares.tolist(), abs=1e-6)
        assert record["probability"] == record["probabilities"][record["label"]]
    assert [record["id"] for record in records] == [str(number) for number in range(180)], "ids are kept"
    (tmp_path / "out.csv").write_text("an earlier file")
    predict_job.run(settings(saved, table, tmp_path / "out.csv", keep="sentence", overwrite=True, neighbours=True))
    with (tmp_path / "out.csv").open(newline="") as file:
        cells = list(csv.DictReader(file))
    assert [one["sentence"] for one in cells] == [row["sentence"] for row in rows] and "id" not in cells[0]
    assert [one["label"] for one in cells] == wanted.labels.tolist()
    assert [one["neighbours"].split() for one in cells] == wanted.ids.astype(str).tolist()


@pytest.mark.parametrize(
    ("outcomes", "counts"),
    [
        ({"answered": 7}, ""),
        ({"answered": 0, "uncertain": 1300}, "0 answered, 1,300 uncertain"),
        ({"answered": 5, "uncertain": 2, "novel": 0}, "5 answered, 2 uncertain, 0 novel"),
    ],
)
def test_every_outcome_that_is_possible_is_counted_even_if_no_row_has_it(outcomes, counts):
    assert predict_job.Summary(7, 0, 1.0, outcomes).counts == counts


@pytest.mark.usefixtures("loaded")
def test_a_promise_leaves_labels_empty_and_a_resumed_run_counts_all_rows(classifier, saved, table, tmp_path, capsys):
    lines, output = table.read_bytes().splitlines(keepends=True), tmp_path / "out.jsonl"
    table.write_bytes(b"".join([*lines[:150], b"149,  \r\n"]))
    failure(predict_job.run, settings(saved, table, output, max_error=0.7))
    assert "labels of probability 0.6666 or more are written, so that at most 70 % of them" in capsys.readouterr().err
    table.write_bytes(b"".join(lines))
    differs = "an unfinished run had another --max_error: choose another file"
    assert differs in failure(predict_job.run, settings(saved, table, output, max_error=0.8))
    other_batches = settings(saved, table, output, max_error=0.7, characters=1000)  # They change the last digits.
    assert "an unfinished run had another --characters" in failure(predict_job.run, other_batches)
    done = predict_job.run(settings(saved, table, output, max_error=0.7))
    records = [json.loads(line) for line in output.read_text().splitlines()]
    assert all((record["label"] is None) == (record["probability"] < 0.66) for record in records)
    empty = sum(record["label"] is None for record in records)
    assert 0 < empty < 180 and done.outcomes == {"answered": 180 - empty, "uncertain": empty}
    assert "max_error=0.3: cannot be promised from 24" in failure(
        predict_job.run, settings(saved, table, output, max_error=0.3, overwrite=True)
    )


@pytest.mark.usefixtures("loaded")
def test_a_killed_run_resumes_to_the_same_bytes(saved, table, tmp_path):
    whole, killed = tmp_path / "whole.csv", tmp_path / "killed.csv"
    predict_job.run(settings(saved, table, whole))
    places = (f"--classifier={saved}", f"--input={table}", f"--output={killed}")
    process = processes.start("experiments/predict.py", *places, "--characters=1500")
    progress = tmp_path / ".killed.csv.progress"
    while not progress.exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL and not killed.exists()
    done = predict_job.run(settings(saved, table, killed))
    assert done.earlier > 0 and done.earlier + done.rows == 180
    assert killed.read_bytes() == whole.read_bytes()


@pytest.mark.usefixtures("loaded")
def test_rows_are_read_once_for_all_runs(classifier, saved, table, tmp_path, monkeypatch):
    monkeypatch.setenv("KNNPROMPT_CACHE", str(tmp_path / "cache"))
    predict_job.run(settings(saved, table, tmp_path / "first.jsonl"))
    read = classifier.model.statistics.prompts
    predict_job.run(settings(saved, table, tmp_path / "second.jsonl"))
    assert classifier.model.statistics.prompts == read
    assert (tmp_path / "second.jsonl").read_bytes() == (tmp_path / "first.jsonl").read_bytes()
    predict_job.run(settings(saved, table, tmp_path / "third.jsonl", cache_gb=0))
    assert classifier.model.statistics.prompts > read
    assert (tmp_path / "third.jsonl").read_bytes() == (tmp_path / "first.jsonl").read_bytes()


def test_a_program_from_the_disk_gives_the_bytes_of_a_fresh_one(saved, table, tmp_path, monkeypatch):
    programs = tmp_path / "programs"
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(programs))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    monkeypatch.delenv("XLA_FLAGS", raising=False)  # Programs as users have them.
    written = []
    compiled = []
    for run in ("fresh", "cached"):
        output = tmp_path / f"{run}.jsonl"
        places = (f"--classifier={saved}", f"--input={table}", f"--output={output}")
        processes.run("experiments/predict.py", *places, "--cache_gb=0", "--probabilities")
        written.append(output.read_bytes())
        compiled.append({path.name for path in programs.glob("*-cache")})
    assert written[0] == written[1]
    assert compiled[0] == compiled[1] and len(compiled[0]) > 5, "the second run compiles nothing"


@pytest.mark.usefixtures("loaded")
def test_a_run_stops_at_a_bad_row_and_resumes_after_its_repair(saved, table, tmp_path):
    good, lines = table.read_bytes(), table.read_bytes().splitlines(keepends=True)
    output, skipped, whole = (tmp_path / f"{name}.jsonl" for name in ("out", "skipped", "whole"))
    predict_job.run(settings(saved, table, whole))
    table.write_bytes(b"".join([*lines[:150], b"149,  \r\n", *lines[151:]]))
    message = f"{table}:151: field 'sentence' is empty; --on_bad=skip leaves such rows out"
    assert failure(predict_job.run, settings(saved, table, output)) == message
    assert not output.exists()
    assert predict_job.run(settings(saved, table, skipped, on_bad="skip")).rows == 179
    assert list(labels(skipped)) == [row for row in range(180) if row != 149]
    table.write_bytes(b"".join([lines[0], *lines[2:]]))
    assert f"{table}: its first 149 rows are not those" in failure(predict_job.run, settings(saved, table, output))
    table.write_bytes(good)
    done = predict_job.run(settings(saved, table, output, overwrite=True))
    assert (done.earlier, done.rows) == (149, 31) and labels(output) == labels(whole)


@pytest.mark.usefixtures("loaded")
def test_skipped_rows_get_no_prediction_and_a_resumed_run_counts_them(saved, table, tmp_path):
    lines, output = table.read_bytes().splitlines(keepends=True), tmp_path / "out.jsonl"
    odd = [b"%d, \r\n" % row if row % 2 else lines[row + 1] for row in range(100)]
    table.write_bytes(b"".join([lines[0], *odd, b"\xff\r\n", *lines[102:]]))
    assert ":102: not UTF-8" in failure(predict_job.run, settings(saved, table, output, on_bad="skip", characters=1500))
    table.write_bytes(b"".join([lines[0], *odd, *lines[101:]]))
    message = f"{table}:3: field 'sentence' is empty; --on_bad=skip leaves such rows out"
    assert failure(predict_job.run, settings(saved, table, output)) == message
    done = predict_job.run(settings(saved, table, output, on_bad="skip"))
    assert done.earlier > 0 and done.earlier + done.rows == len(labels(output)) == 130


@pytest.mark.usefixtures("loaded")
def test_a_run_that_begins_anew_counts_its_own_rows(saved, table, tmp_path):
    lines, output = table.read_bytes().splitlines(keepends=True), tmp_path / "out.jsonl"
    table.write_bytes(b"".join([*lines[:150], b"149,  \r\n"]))
    assert ":151: field" in failure(predict_job.run, settings(saved, table, output))
    table.write_bytes(b"".join([lines[0], *lines[2:]]))
    done = predict_job.run(settings(saved, table, output, overwrite=True))
    assert (done.earlier, done.rows) == (0, 179)


@pytest.mark.usefixtures("loaded")
def test_novel_texts_get_no_label(classifier, saved, table, tmp_path):
    predict_job.run(settings(saved, table, tmp_path / "all.jsonl"))
    predict_job.run(settings(saved, table, tmp_path / "some.jsonl", reject_novel=0.3))
    every, some = (
        [json.loads(line) for line in (tmp_path / name).read_text(encoding="utf-8").splitlines()]
        for name in ("all.jsonl", "some.jsonl")
    )
    assert [record["novelty"] for record in every] == [record["novelty"] for record in some]
    is_novel = [record["novelty"] <= 0.3 for record in every]
    assert 0 < sum(is_novel) < 120
    assert [record["label"] is None for record in some] == is_novel
    assert {record["probability"] for record in some} == {record["probability"] for record in every}
    done = predict_job.run(settings(saved, table, tmp_path / "both.jsonl", reject_novel=0.3, abstain=0.67))
    expected = collections.Counter(
        "novel" if row["novelty"] <= 0.3 else "uncertain" if row["probability"] < 0.67 else "answered" for row in every
    )
    assert done.outcomes == expected and len(expected) == 3
    message = f"the smallest p-value from {len(classifier.anchors_)} rows is "
    assert message in failure(predict_job.run, settings(saved, table, tmp_path / "none.jsonl", reject_novel=0.001))


@pytest.mark.usefixtures("loaded")
def test_ids_that_only_later_rows_have_are_copied(saved, tmp_path, capsys):
    (tmp_path / "rows.jsonl").write_text('{"sentence": "a"}\n{"sentence": "b", "id": "B7", "team": "x"}\n')
    predict_job.run(settings(saved, tmp_path / "rows.jsonl", tmp_path / "out.jsonl"))
    first, second = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert "id" not in first and second["id"] == "B7" and "team" not in second
    (tmp_path / "rows.csv").write_text("sentence,id,team\na,B7,x\n")
    predict_job.run(settings(saved, tmp_path / "rows.csv", tmp_path / "out.csv"))
    assert capsys.readouterr().err == "columns not copied: team (--keep=all copies them)\n"


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(("kind", "content"), [("jsonl", ""), ("csv", "row,label,probability,novelty\n")])
def test_no_rows(saved, tmp_path, kind, content):
    (tmp_path / "rows.csv").write_text("id,sentence\n")
    assert predict_job.run(settings(saved, tmp_path / "rows.csv", tmp_path / f"out.{kind}")).rows == 0
    assert (tmp_path / f"out.{kind}").read_text() == content


def test_mistakes_are_told_before_the_model_loads(saved, table, tmp_path, monkeypatch):
    monkeypatch.setattr(saving.Saved, "load_model", None)
    table.with_suffix(".jsonl").touch()
    (tmp_path / "nowhere.csv").symlink_to("missing")
    for options, message in [
        ({"classifier": tmp_path}, "a folder, but a classifier is a file"),
        ({"input": tmp_path / "none.csv"}, "cannot read the file"),
        ({"output": "out.txt"}, "--output=out.txt: the format is not jsonl or csv; name it with --output_format="),
        ({"output_format": "txt"}, "output_format='txt': choose from jsonl, csv"),
        ({"keep": "id,team"}, "--keep=id,team: the input has no column 'team'; choose from ids, all, none, id,"),
        ({"output": tmp_path / "nowhere.csv"}, "is a link to missing, which does not exist"),
        ({"output": table}, "it is the input, which would be lost"),
        ({"output": table.with_suffix(".jsonl")}, "exists already"),
        ({"output": saved, "output_format": "csv"}, "it is the classifier, which would be lost"),
    ]:
        given = {"classifier": saved, "input": table, "output": tmp_path / "new.jsonl", **options}
        with pytest.raises(errors.UserError) as caught:
            predict_job.run(commands.PredictionSettings(**{name: str(value) for name, value in given.items()}))
        assert message in str(caught.value)


@pytest.mark.usefixtures("loaded")
def test_one_text(classifier, rows, saved, capfdbinary):
    text = rows[3]["sentence"]
    predict_job.run(commands.PredictionSettings(classifier=str(saved), text=text, probabilities=True))
    record = json.loads(capfdbinary.readouterr().out)
    wanted = classifier.answer([text])
    assert [record["label"]] == wanted.labels.tolist()
    assert list(record["probabilities"].values()) == pytest.approx(wanted.probabilities[0].tolist(), abs=1e-6)
    for options, message in [
        ({}, "--input, --text: give a file of rows or one text"),
        ({"text": text, "input": "rows.csv"}, "--input, --text: give a file of rows or one text"),
        (
            {"text": text, "overwrite": True, "output": "x.txt"},
            "--output=x.txt: the format is not jsonl or csv; name it with --output_format=",
        ),
        ({"text": text, "on_bad": "skip"}, "--on_bad: has no effect with --text; leave it out"),
    ]:
        assert failure(lambda options=options: commands.PredictionSettings(classifier=str(saved), **options)) == message


def test_one_text_needs_no_slow_imports():
    """Their imports would take longer than the prediction of a text."""
    code = "import sys, knnprompt_jax.commands.predict_job; print([*{'pandas', 'scipy', 'sklearn'} & {*sys.modules}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True, cwd=processes.ROOT)
    assert done.stdout == "[]\n"


@pytest.mark.long
def test_pipes(saved, table, tmp_path):
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
