"""Tuning from settings to table, from rows and from a saved classifier."""

import csv
import dataclasses
import json

import numpy as np
import pytest

import knnprompt_jax as kp
from knnprompt_jax.classifier import trials
from knnprompt_jax.rules.choice import Choice
from knnprompt_jax.runs import fitting, tuning
from knnprompt_jax.settings import commands
from knnprompt_jax.tasks.task import Example
from tests import commands as shell

TEXTS = ["same text"] * 5 + ["a dog", "a cat", "why not", "who is it", "it rains", "is it", "it snows", "are you"]
LABELS = [0] * 5 + [0, 1, 1, 1, 0, 1, 0, 1]


@pytest.fixture
def files(tmp_path):
    (tmp_path / "talk.yaml").write_text(
        'fields: [text]\ntemplate: "{text}\\nIt is"\nlabels: [0, 1]\nlabel_words: [said, asked]\n'
    )
    rows = [{"text": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"task": str(tmp_path / "talk.yaml"), "train_file": str(tmp_path / "train.jsonl")}


def test_the_command_makes_what_was_tried_and_baselines_are_measured_on_the_same_rows(tmp_path, monkeypatch):
    """Of a table with columns of other names; its options are read as a command line's."""
    rows = [(f"{'good' if i % 2 else 'bad'} thing {i}", "ab"[i % 2], "n/a") for i in range(30)]
    with (tmp_path / "train.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("what", "who", "why"), *rows])
    given = {"train_file": str(tmp_path / "train.csv"), "task": "own", "label_column": "who", "text_columns": ("what",)}
    done = tuning.run(commands.TuningSettings(model="tiny", **given, demo_shots=(3, 0), k=(1,), seed=7))
    assert done.tuning.choice.num_anchors == 24
    summary = tuning.summarize(done)
    assert "TF-IDF, logistic regression" in summary and f"to use it: {done.command}" in summary
    accuracy = done.tuning.baselines["most common class"]
    assert accuracy.standard_error == pytest.approx(np.sqrt(13 / 26 * 13 / 26 / 24), rel=1e-6), "of 24 rows"
    monkeypatch.chdir(tmp_path)
    shell.run(done.command)
    fitted = kp.load(tmp_path / "my_classifier")
    assert fitted.task.fields == ("what",) and fitted.rule_.rule == done.tuning.choice.rule.rule
    examples = [Example({"what": what}, who, row) for row, (what, who, _) in enumerate(rows)]
    options = {"demo_shots": done.tuning.choice.rule.demo_shots, "random_state": 7}
    [(drawn, _)] = trials.draws(kp.AutoClassifier(fitted.model, fitted.task, **options), examples).values()
    assert [example.row for example in fitted.demonstrations_] == [example.row for example in drawn]


def test_the_best_is_saved_in_the_folder_of_a_classifier(files, tmp_path):
    store = str(tmp_path / "saved")
    fitting.run(commands.FitSettings(model="tiny", **files, store=store, demo_shots=0, rule="knn"))
    done = tuning.run(commands.TuningSettings(store=store))
    assert "k=15, 25, 51 left out: there are too few other anchors" in tuning.summarize(done)
    assert done.command == f"knnprompt tune --store={store} --apply" and not kp.load(store).choice_.candidates
    assert (
        "--metric=accuracy --k=1,3"
        in tuning.run(commands.TuningSettings(store=store, metric="accuracy", k=(1, 3))).command
    )
    applied = tuning.run(commands.TuningSettings(store=store, apply=True))
    loaded = kp.load(store)
    assert "saved" in tuning.summarize(applied).splitlines()[-1]
    assert loaded.choice_ == applied.tuning.choice and loaded.rule_ == done.tuning.choice.rule
    with pytest.raises(kp.UserError, match="holds a classifier that `tune` changed"):
        fitting.run(commands.FitSettings(model="tiny", **files, store=store, demo_shots=0))
    fitting.run(
        commands.FitSettings(model="tiny", **files, store=store, demo_shots=0, metric="accuracy", overwrite=True)
    )
    assert not kp.load(store).choice_.is_tuned
    assert tuning.run(commands.TuningSettings(store=store)).tuning.choice.metric == "accuracy"
    assert set(loaded.predict(["who is", "a dog"])) <= {"0", "1"}


def test_ks_without_enough_anchors_are_no_candidates(files):
    done = tuning.run(commands.TuningSettings(model="tiny", **files, demo_shots=(0,), k=(1, 500)))
    assert {each.rule.k for each in done.tuning.choice.candidates} == {1}
    few = tuning.run(commands.TuningSettings(model="tiny", **files, demo_shots=(1, 0), k=(12,)))
    assert {each.rule.demo_shots for each in few.tuning.choice.candidates} == {0}, "11 anchors have 10 others"
    with pytest.raises(kp.UserError, match="--k=500: choose from 1 to 12: each anchor has 12 others"):
        tuning.run(commands.TuningSettings(model="tiny", **files, demo_shots=(0,), k=(500,)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"demo_shots": ()}, r"demo_shots=\(\): give at least one value"),
        ({"demo_shots": (0, -2)}, "demo_shots="),
        ({"apply": True}, "--apply: name the folder"),
        ({"store": "st", "label_column": "who"}, "--label_column: has no effect with --store"),
        ({"store": "st", "truncation": "error"}, "--truncation: has no effect with --store"),
        ({"metric": "luck"}, "metric='luck': choose from log_loss, accuracy, macro_f1"),
    ],
)
def test_bad_settings_are_refused(change, message):
    with pytest.raises(kp.UserError, match=message):
        commands.TuningSettings(**change)


def test_a_table_is_a_task_of_its_own():
    assert commands.TuningSettings(train_file="a.csv").task_name == "own"
    assert commands.TuningSettings().task_name == "demo"
    assert commands.TuningSettings(task="mr", train_file="a.csv").task_name == "mr"


def test_too_few_anchors_print_no_table(files):
    done = tuning.run(commands.TuningSettings(model="tiny", **files, demo_shots=(0,)))
    assert "anchors classified by the others" in str(done.tuning)
    few = dataclasses.replace(done.tuning, choice=Choice(done.tuning.choice.rule))
    assert str(few).splitlines()[-1].startswith("too few anchors to choose by") and "classified" not in str(few)
