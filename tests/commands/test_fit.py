"""Classifiers fitted to a table or to a task's rows, from settings to summary."""

import dataclasses
import json
import re

import pandas as pd
import pytest

import knnprompt_jax as kp
from knnprompt_jax.classifier import classifier_file
from knnprompt_jax.classifier.experts import pool_fitting
from knnprompt_jax.cli import command_settings as commands
from knnprompt_jax.commands import evaluate_job, fit_job, look_job, predict_job
from knnprompt_jax.common import errors
from knnprompt_jax.models import registry

pytestmark = pytest.mark.usefixtures("loaded_once")

BILLING = ("I was charged twice", "refund me", "the invoice is wrong", "money back", "a fee")
OUTAGE = ("the site is down", "nothing loads", "server error")


def write_table(path, rows, header=("message", "team")):
    pd.DataFrame(rows, columns=header).to_csv(path, index=False)
    return path


@pytest.fixture
def table(tmp_path):
    """Eight tickets of two classes, with their numbers and days."""
    rows = [(text, "billing team") for text in BILLING] + [(text, "outage") for text in OUTAGE]
    numbered = [(f"x{i}", text, "2026-01-02", team) for i, (text, team) in enumerate(rows)]
    return write_table(tmp_path / "train.csv", numbered, ("ticket_id", "message", "day", "team"))


def test_descriptions_of_classes_are_enough(tmp_path, capsys, monkeypatch):
    """A classifier without rows answers, with shares of texts in the encoding of their file; it promises nothing."""
    monkeypatch.chdir(tmp_path)
    task = tmp_path / "support.yaml"
    declared = {"fields": ["title", "text"], "template": "Text: {title} {text}\n:", "labels": ["billing", "outage"]}
    task.write_text(json.dumps(declared | {"label_words": ["money", "fault"]}))
    texts = write_table(tmp_path / "more.csv", [("caf\u00e9", f"no money {i}") for i in range(7)], ("title", "text"))
    texts.write_bytes(texts.read_bytes().decode().encode("cp1252"))
    given = {"unlabelled_file": str(texts), "encoding": "cp1252", "class_prior": "estimate"}
    rowless = commands.FitSettings(task=str(task), model="tiny", classifier="mine", demo_shots=(0,), **given)
    with pytest.raises(errors.UserError, match="its rows are not included"):
        fit_job.run(rowless)
    task.write_text(json.dumps(declared | {"label_words": ["money", "fault"], "descriptions": ["a fee", "it is down"]}))
    done = fit_job.run(rowless)
    assert {member.expert for member in done.content.choice.used} == {"labels", "means"}
    assert "no rows" in capsys.readouterr().err and done.num_read == 2 + 2 + 7
    shares = "billing={:.3g},outage={:.3g}".format(*done.content.prior_C)
    assert f"shares of classes among 7 texts without labels: {shares}" in fit_job.summarize(done).splitlines()
    look_job.run(commands.LookSettings(classifier="mine", input=str(texts), encoding="cp1252", budget=3))
    assert pd.read_csv("look/table.csv")["title"].tolist() == ["caf\u00e9"] * 3, "descriptions are no rows to correct"
    classifier = kp.load(tmp_path / "mine")
    assert classifier.fitted_.content.views == done.content.views
    described = [dict.fromkeys(("title", "text"), text) for text in ("a fee", "it is down")]
    classifier = kp.AutoClassifier(classifier.model, classifier.task).fit([], [])
    assert classifier.predict_proba(described).argmax(1).tolist() == [0, 1]
    with pytest.raises(kp.UserError, match="too few"):
        classifier.predict(described, max_error=0.2)
    with pytest.raises(kp.UserError, match="no rows"):
        kp.KNNPrompting(classifier.model, classifier.task).fit([], [])


def settings(table, **options):
    given = {"train_file": str(table), "label_column": "team", "model": "tiny"}
    return commands.FitSettings(**given | {"classifier": str(table.parent / "mine")} | options)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """Give each test a cache of its own."""
    monkeypatch.setenv("KNNPROMPT_CACHE", str(tmp_path_factory.mktemp("cache")))


def test_commands_and_python_fit_the_same_classifier(tiny, table):
    """Both call one function; the command's default seed is 1."""
    done = fit_job.run(settings(table, demo_shots=(1,)))
    rows = pd.read_csv(table)
    classifier = kp.AutoClassifier(tiny, done.content.task, demo_shots=1, random_state=1)
    classifier.fit(list(rows["message"]), list(rows["team"]))
    drawn = [example.row for example in classifier.demonstrations_]
    assert drawn == [example.row for example in done.content.demonstrations] and len(drawn) == 2
    assert [*classifier.anchors_] == [example.row for example in done.content.anchors]
    loaded = kp.load(table.parent / "mine", classifier.model)
    assert loaded.predict(list(OUTAGE)).tolist() == classifier.predict(list(OUTAGE)).tolist()


class Interrupted(Exception):
    """The process ends here."""


@pytest.mark.parametrize("name", ["train.csv", "empty"])
def test_only_a_classifier_is_replaced(table, name):
    (table.parent / "empty").touch()
    before = table.read_bytes()
    with pytest.raises(errors.UserError, match=f"{name}: exists and is not a classifier"):
        fit_job.run(settings(table, classifier=str(table.parent / name), overwrite=True))
    assert table.read_bytes() == before


def test_an_interrupted_fit_leaves_the_earlier_file_and_resumes(tmp_path, monkeypatch):
    path = tmp_path / "mine"
    given = {"experts": ("knn",), "task": "demo", "model": "tiny", "shots": 3, "demo_shots": (1,)}
    job = commands.FitSettings(**given, seed=3, classifier=str(path), overwrite=True)

    def interrupt(*arguments, **options):
        raise Interrupted

    with monkeypatch.context() as patched, pytest.raises(Interrupted):
        patched.setattr(pool_fitting.Pool, "fit", interrupt)  # After the states are read.
        fit_job.run(job)
    assert not path.exists()
    first = fit_job.run(job)
    assert first.num_read == 0 and first.num_prompts == 18, "the states are in the cache"
    assert "prompts read: 0; found in the cache: 18" in fit_job.summarize(first)
    content = path.read_bytes()
    with monkeypatch.context() as patched, pytest.raises(Interrupted):
        patched.setattr(pool_fitting.Pool, "fit", interrupt)
        fit_job.run(dataclasses.replace(job, seed=4))
    with pytest.raises(errors.UserError, match="mine: exists already"):
        fit_job.run(dataclasses.replace(job, seed=4, overwrite=False))
    assert path.read_bytes() == content and [each.name for each in tmp_path.iterdir()] == ["mine"]
    fit_job.run(job)
    assert path.read_bytes() == content, "equal fits write equal files"


def test_an_edited_table_needs_only_its_new_prompts(table):
    rows = [(f"ticket {i}: {BILLING[i % 5]}{OUTAGE[i % 3]}", ("billing", "outage")[i % 2]) for i in range(40)]
    job = settings(write_table(table, rows), demo_shots=(0,), overwrite=True)
    assert fit_job.run(job).num_read == 40 + 2, "the names of two classes, too"
    write_table(table, [*rows[:30], *rows[33:], ("a new ticket", "outage")])
    assert fit_job.run(job).num_read == 1
    assert len(classifier_file.read(table.parent / "mine").content.anchors) == 38


def test_all_rows_of_a_table_are_used(table, capsys):
    done = fit_job.run(settings(table, demo_shots=(1,)))
    content = classifier_file.read(table.parent / "mine").content
    assert content.choice == done.content.choice
    assert sorted(example.row for example in content.rows) == list(range(8))
    assert len(content.demonstrations) == 2
    assert content.task.fields == ("message",) and content.task.labels == ("billing team", "outage")
    printed = fit_job.summarize(done)
    assert "3 to 5 per class" in printed and "read: 10;" in printed and "8 rows: too few for a forecast" in printed
    assert all(member.title in printed for member in done.content.choice.members)
    assert "message; left out: ticket_id, day" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_file": ""}, "--train_file: give a table, or a task"),
        ({"label_column": "kind"}, "train.csv:2: no label column 'kind', only ticket_id, message, day, team: name it"),
        ({"task": "mr", "text_columns": ("day",)}, "--text_columns: has no effect with --task=mr"),
        ({"task": "own", "data_dir": "data"}, "--data_dir: has no effect with --train_file"),
        ({"class_prior": "outage=1"}, "or a share of 0 or more for each of billing team, outage"),
    ],
)
def test_mistakes_are_one_line_before_weights_load(table, options, message, loaded_once, monkeypatch):
    loaded_once.clear()
    monkeypatch.setattr(registry, "load", None)
    with pytest.raises(errors.UserError, match=re.escape(message)):
        fit_job.run(settings(table, **options))
    assert [path.name for path in table.parent.iterdir()] == ["train.csv"]


@pytest.mark.parametrize("shots", [None, 1])
def test_a_row_of_each_class_is_enough(table, shots):
    write_table(table, [("refund me", "billing"), ("server error", "outage")])
    content = fit_job.run(settings(table, shots=shots)).content
    assert ([example.row for example in content.anchors], content.demonstrations) == ([0, 1], ())


def test_texts_in_columns_of_other_names(tmp_path, caplog):
    """`text_columns` maps the file's columns to the classifier's by their order, also if both names occur."""
    rows = [(f"title {number}", f"body {number}", "xy"[number % 2]) for number in range(7)]
    train = write_table(tmp_path / "train.csv", rows, ("title", "body", "label"))
    fit_job.run(settings(train, demo_shots=(0,), experts=("knn",), label_column="label"))
    swapped = [(body, title, label) for title, body, label in rows]
    other = write_table(tmp_path / "other.csv", swapped, ("title", "subject", "label"))
    place = {"classifier": str(tmp_path / "mine"), "input": str(other), "text_columns": ("subject", "title")}
    assert "Rows measured: 7." in evaluate_job.run(commands.EvaluationSettings(**place, output=str(tmp_path / "page")))
    assert "7 of 7 rows are near copies of rows of the classifier" in caplog.text
    predict_job.run(commands.PredictionSettings(**place, output=str(tmp_path / "out.jsonl"), keep=("title",)))
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    expected = kp.load(tmp_path / "mine").predict([{"title": title, "body": body} for title, body, _ in rows])
    assert [record["label"] for record in records] == expected.tolist()
    assert [record["title"] for record in records] == [row[1] for row in rows], "columns keep the names of the file"
