"""Classifiers fitted to a table or to a task's rows, from settings to summary."""

import csv
import dataclasses
import json
import re

import jax
import numpy as np
import pytest

import knnprompt_jax as kp
from knnprompt_jax import errors, evaluation
from knnprompt_jax.classifier import trials
from knnprompt_jax.models.weights import checkpoints
from knnprompt_jax.prediction import job as prediction
from knnprompt_jax.report import anchors, look
from knnprompt_jax.rules import evidence
from knnprompt_jax.runs import comparison, fitting, tuning
from knnprompt_jax.settings import commands
from knnprompt_jax.settings.stores import StoreOptions
from tests.runs.conftest import choosing

BILLING = ("I was charged twice", "refund me", "the invoice is wrong", "money back", "a fee")
OUTAGE = ("the site is down", "nothing loads", "server error")
KINDS = {"dense": StoreOptions(kind="dense"), "factored": StoreOptions(kind="factored")}


def write_table(path, rows, header=("message", "team")):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


@pytest.fixture
def table(tmp_path):
    """Eight tickets of two classes, with their numbers and days."""
    rows = [(text, "billing team") for text in BILLING] + [(text, "outage") for text in OUTAGE]
    numbered = [(f"x{i}", text, "2026-01-02", team) for i, (text, team) in enumerate(rows)]
    return write_table(tmp_path / "train.csv", numbered, ("ticket_id", "message", "day", "team"))


def settings(table, **options):
    given = {"train_file": str(table), "label_column": "team", "model": "tiny", "store": str(table.parent / "mine")}
    return commands.FitSettings(**{**given, **options})


@pytest.fixture(scope="module")
def shared(world):
    """Options of the published classifier on the rows of a task."""
    drawn = {"rule": "knn", "task": "mr", "shots": 9, "demo_shots": 2}
    return {**drawn, "model": str(world / "model"), "data_dir": str(world / "data")}


@pytest.fixture(scope="module")
def built(shared, tmp_path_factory):
    """Published classifiers with a dense and a factored store of the same anchors."""
    folder = tmp_path_factory.mktemp("classifiers")
    jobs = {
        kind: commands.FitSettings(**shared, store=str(folder / kind), datastore=own) for kind, own in KINDS.items()
    }
    return folder, {kind: fitting.run(job) for kind, job in jobs.items()}


def test_the_published_classifier_is_that_of_the_comparison(built, world, job):
    """The same draw, anchors and votes as the method knn; ids are rows of the train file."""
    store = kp.load(built[0] / "dense").store_
    rows = [json.loads(line) for line in (world / "data/mr/train.jsonl").read_text().splitlines()]
    assert [int(rows[index]["label"]) for index in store.ids_N] == store.labels_N.tolist()
    texts = [json.loads(line)["sentence"] for line in (world / "data/mr/dev_subsample.jsonl").open()]
    [record] = comparison.run(dataclasses.replace(job, seeds=(1,), methods="knn"))
    assert kp.load(built[0] / "factored").predict(texts).tolist() == list(record.predicted)


@pytest.mark.parametrize(
    ("options", "knn", "store"),
    [
        (KINDS["dense"], {"distance": "reverse_kl"}, ""),
        (StoreOptions(), {"approximate_recall": 0.9}, ""),
        (StoreOptions(placement="host"), {}, "dense"),
        (StoreOptions(), {"distance": "kl_labels"}, "factored"),
        (StoreOptions(), {"centroid": "arithmetic"}, "dense"),
    ],
)
def test_no_store_changes_a_prediction(options, knn, store, job, built):
    given = {name: value for name, value in knn.items() if name != "approximate_recall"}
    place = str(built[0] / store) if store else ""
    plain = comparison.run(choosing(dataclasses.replace(job, seeds=(1,)), knn=given))
    drawn = {"seeds": None, "shots": None, "demo_shots": -1} if store else {"seeds": (1,)}
    own = dataclasses.replace(job, datastore=options, store=place, **drawn)
    other = comparison.run(choosing(own, knn=knn))
    assert [record.predicted for record in other] == [record.predicted for record in plain]
    assert other[1].prompts == (13 if store else 27)  # The anchors of a saved classifier are not read again.


def test_prompts_that_are_too_long_are_counted(table, tmp_path, caplog):
    long = " ".join(["refund"] * 3000)
    with table.open("a", newline="") as file:
        csv.writer(file).writerow(["x9", long, "2026-01-02", "outage"])
    fitting.run(settings(table, demo_shots=0))
    store, more = {"store": str(table.parent / "mine")}, write_table(tmp_path / "more.csv", [(long + "s", "outage")])
    fitting.run(commands.FitSettings(**store, append=str(more)))
    evaluation.run(commands.EvaluationSettings(**store, input=str(more), output=str(tmp_path / "out")))
    more.write_bytes(more.read_bytes() + b",outage\n")
    with pytest.raises(errors.UserError, match="is empty"):
        prediction.run(commands.PredictionSettings(**store, input=str(more), output=str(tmp_path / "out.csv")))
    texts = [record.getMessage() for record in caplog.records if "longer than the context" in record.getMessage()]
    assert [text[: text.index(" prompts")] for text in texts] == ["1 of 9", "1 of 1", "1 of 1", "1 of 1"]


def test_a_comparison_has_the_kind_of_the_saved_store(job, built):
    given = {"seeds": None, "shots": None, "demo_shots": -1, "store": str(built[0] / "dense"), "methods": "knn"}
    [record] = comparison.run(dataclasses.replace(job, **given, datastore=StoreOptions(memory_mb=9.0)))
    assert record.settings["datastore"] == StoreOptions("dense", memory_mb=9.0).to_dict()
    with pytest.raises(errors.UserError, match="--datastore.kind=factored: the saved classifier has dense"):
        comparison.run(dataclasses.replace(job, **given, datastore=StoreOptions("factored")))


def test_an_interrupted_fit_resumes_and_a_finished_one_reads_nothing(shared, tmp_path, monkeypatch):
    job = commands.FitSettings(**{**shared, "seed": 3}, store=str(tmp_path / "store"))
    with monkeypatch.context() as patched, pytest.raises(TypeError):
        patched.setattr(kp.KNNPrompting, "fit_states", None)  # Interrupted after the states are read.
        fitting.run(job)
    assert not (tmp_path / "store").exists()
    first = fitting.run(job)
    assert first.statistics.prompts == 0, "the states are in the cache"
    again = fitting.run(job)
    assert again.statistics.prompts == 0
    assert fitting.summarize(again) == fitting.summarize(first)
    jax.tree.map(np.testing.assert_array_equal, again.classifier.store_.anchors, first.classifier.store_.anchors)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    with pytest.raises(
        errors.UserError, match="holds a classifier that `tune` changed, or one with other rows or options"
    ):
        fitting.run(dataclasses.replace(job, seed=4))
    assert fitting.run(dataclasses.replace(job, seed=4, overwrite=True)).classifier.random_state == 4


def test_as_many_demonstrations_as_the_context_holds_by_default(shared, tmp_path):
    result = fitting.run(commands.FitSettings(**shared | {"demo_shots": None}, store=str(tmp_path / "store")))
    assert result.classifier.demo_shots == 2 and len(result.classifier.demonstrations_) == 4


@pytest.mark.parametrize("seed", [1, 2])  # The last row is a demonstration, and an anchor.
def test_all_rows_of_a_table_are_used(table, seed, capsys):
    done = fitting.run(settings(table, demo_shots=1, seed=seed))
    loaded = kp.load(table.parent / "mine", done.classifier.model)
    shown = [example.row for example in loaded.demonstrations_]
    assert sorted([*shown, *loaded.anchors_]) == list(range(8)) and len(shown) == 2
    assert (7 in shown) == (seed == 1) and loaded.num_rows_ == 8
    assert loaded.task.fields == ("message",) and loaded.task.labels == ("billing team", "outage")
    rows, rule = fitting.summarize(done).splitlines()
    assert rows.startswith("8 rows of 2 classes, read by tiny: 6 anchors (2 to 4 per class), 2 demonstrations")
    assert "columns in the prompt: message; left out: ticket_id, day" in capsys.readouterr().err
    assert rule.startswith("AutoClassifier: rule=votes") and rule.endswith("at least 10 anchors and two classes")


def test_a_messy_table_is_used_without_a_second_option(tmp_path, caplog, capsys, monkeypatch):
    """Its encoding and label column are saved; rows without a body count, one without a label is left out, ids are kept."""
    monkeypatch.chdir(tmp_path)
    texts = [f"caf\u00e9 {i}: {BILLING[i % 5]}{OUTAGE[i % 3]}" for i in range(12)]
    rows = [
        (f"T-{i}", each, "" if i % 3 else "see above", "low", ("pay", "Pay ")[i % 2]) for i, each in enumerate(texts)
    ]
    lines = [
        ",".join(row) + "\n"
        for row in [("ticket_id", "title", "body", "priority", "team"), *rows, ("T-12", *"ab", "", "")]
    ]
    (tmp_path / "train.csv").write_text("".join(lines), encoding="latin-1")
    (tmp_path / "test.csv").write_text("".join(lines[:4]), encoding="latin-1")
    (tmp_path / "more.csv").write_text(f"team,title,body,priority\nPAY,{texts[1]},,low\n", encoding="latin-1")
    fixed = {"rule": "knn", "k": 1, "demo_shots": 0, "text_columns": ("title", "body", "priority")}
    fitting.run(settings(tmp_path / "train.csv", encoding="latin-1", on_bad="skip", **fixed))
    expected = "columns in the prompt: title, body, priority; left out: ticket_id; to change them: --text_col"
    assert expected in capsys.readouterr().err
    store = {"store": str(tmp_path / "mine")}
    assert "Rows measured: 3" in evaluation.run(commands.EvaluationSettings(**store, input="test.csv"))
    tuning.run(commands.TuningSettings(**store, k=(1,), apply=True))
    fitting.run(commands.FitSettings(**store, append="more.csv"))
    for message in (
        "train.csv: 1 of 13 rows are left out: ",
        "different classes (rows): 'pay' (6), 'Pay ' (6)",
        "3 of 3 rows repeat a text that the classifier was fitted to, so scores are too high; first: test.csv:2",
        "1 of 1 rows to append have another label than an earlier row with the same text: more.csv:2 is 'PAY', id 1 is 'Pay '",
        "different classes (rows): 'Pay ' (6), 'pay' (6), 'PAY' (1)",
    ):
        assert message in caplog.text
    (tmp_path / "more.csv").write_text(f"team,title,body,priority\nPAY,{texts[2]},,low\n", encoding="utf-8")
    with pytest.raises(errors.UserError, match="more.csv: UTF-8, not LATIN-1: add --encoding=utf-8"):
        fitting.run(commands.FitSettings(**store, append="more.csv"))
    classifier = kp.load(tmp_path / "mine")
    assert classifier.anchors_[11].ids == {"ticket_id": "T-11"}
    header, *suggestions = anchors.suggestions(look.classify_anchors(classifier)).to_csv(index=False).splitlines()
    assert header == "id,ticket_id,text,label,suggested,why" and any(",T-" in line for line in suggestions)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_file": ""}, "--train_file: give a table, or a task"),
        ({"train_file": "none.csv"}, "none.csv: cannot read the file"),
        ({"label_column": "kind"}, "train.csv:2: no label column 'kind', only ticket_id, message, day, team: name it"),
        ({"text_columns": ("body",)}, "train.csv:2: lacks the field 'body'"),
        ({"task": "mr", "text_columns": ("day",)}, "--text_columns: has no effect with --task=mr"),
        ({"task": "own", "data_dir": "data"}, "--data_dir: has no effect with --task=own; leave it out"),
        ({"task": "own", "hub": True}, "--hub: has no effect with --task=own; leave it out"),
        ({"restore_dropped": True}, "--restore_dropped: has no effect with --train_file"),
        ({"train_file": "", "task": "demo", "encoding": "cp1252"}, "--encoding: has no effect on rows of --data_dir"),
        (
            {"train_file": "", "task": "mr", "hub": True, "label_column": "x"},
            "--label_column: has no effect with --hub",
        ),
        ({"k": 7, "demo_shots": 1}, "k=7: there are 6 anchors"),
        ({"centroid": "arithmetic"}, "--centroid: has no effect without --rule=knn"),
        ({"rule": "probe", "k": 3}, "k=3: rule='probe' does not use it; leave it out"),
        ({"rule": "votes", "layer": 1}, "layer=1: rule='votes' does not use it; leave it out"),
    ],
)
def test_mistakes_are_one_line_before_weights_load(table, options, message, monkeypatch):
    monkeypatch.setattr(checkpoints, "load", None)
    with pytest.raises(errors.UserError, match=re.escape(message)):
        fitting.run(settings(table, **options))
    assert [path.name for path in table.parent.iterdir()] == ["train.csv"]


def test_what_is_not_given_is_chosen_on_the_same_drawn_rows(table):
    """Twelve of forty rows are drawn; the anchors that all numbers of demonstrations share are compared."""
    rows = [(f"ticket {i}: {BILLING[i % 5]}{OUTAGE[i % 3]}", ("billing", "outage")[i % 2]) for i in range(40)]
    done = fitting.run(settings(write_table(table, rows), shots=6))
    choice = done.classifier.choice_
    assert {each.rule.demo_shots for each in choice.candidates} == {0, 1}
    assert choice.num_anchors == 12 - 2 * 1 and fitting.summarize(done).count(choice.line) == 1
    assert len(done.classifier.anchors_) == 12 - 2 * choice.rule.demo_shots
    assert done.classifier.num_rows_ == 40, "ids of appended rows are not those of rows that were not drawn"
    again = fitting.run(settings(table, shots=6))
    assert again.statistics.prompts == 0 and again.classifier.choice_ == choice


@pytest.mark.parametrize("shots", [None, 1])
def test_a_row_of_each_class_is_enough(table, shots):
    write_table(table, [("refund me", "billing"), ("server error", "outage")])
    done = fitting.run(settings(table, shots=shots)).classifier
    assert (sorted(done.anchors_), done.demonstrations_) == ([0, 1], ())


@pytest.mark.parametrize(("limit", "compared"), [(1024, (10, 12, 14)), (11, (10, 11, 11))])
def test_anchors_read_to_choose_are_read_once(table, monkeypatch, limit, compared):
    """Fourteen rows, with two, one and no demonstrations per class."""
    rows = [(f"note {limit} {i}: {BILLING[i % 5]} {OUTAGE[i % 3]}", ("billing", "outage")[i % 2]) for i in range(14)]
    write_table(table, rows)
    monkeypatch.setattr(evidence, "LIMIT", limit)
    monkeypatch.setattr(trials, "candidate_shots", lambda most, rows: [2, 1, 0])
    done = fitting.run(settings(table, cache_gb=0.0 if limit == 1024 else 1.0))
    more = len(done.classifier.anchors_) - max(compared) if limit < len(done.classifier.anchors_) else 0
    assert done.statistics.prompts == sum(compared) + max(0, more)


def test_fewer_demonstrations_than_requested_are_reported_before_weights_load(table, caplog, monkeypatch):
    monkeypatch.setattr(checkpoints, "load", None)
    with pytest.raises(TypeError):
        fitting.run(settings(table, rule="knn", demo_shots=100, k=1))
    assert (
        "--demo_shots=100: only 3 demonstrations were drawn in all, because at most half of a class becomes "
        in caplog.text
    )
    caplog.clear()
    with pytest.raises(TypeError):
        fitting.run(settings(table, rule="knn", demo_shots=4, shots=101, k=1))
    assert "at most half" not in caplog.text and "train rows of the 101 asked for" in caplog.text
