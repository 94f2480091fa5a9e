"""The command that fits a saved classifier again."""

import csv
import dataclasses
import shlex

import pytest

import knnprompt_jax as kp
from knnprompt_jax import options
from knnprompt_jax.classifier import classifier_options
from knnprompt_jax.report import look
from knnprompt_jax.runs import fitting, refitting
from knnprompt_jax.settings import commands

OPTIONS = {
    "text_columns": ("the title", "body"),
    "label_column": "which team",
    "encoding": "latin-1",
    "merge_labels": True,
    "empty": "skip",
    "experts": ("knn", "means"),
    "demo_shots": (0,),
    "seed": 3,
    "class_prior": "it's late=0.8,outage=0.2",
    "truncation": "error",
    "model": "tiny",
}


@pytest.fixture
def fitted(tmp_path, monkeypatch):
    """The settings of a fit to a table, in the working folder, whose columns and labels need quotes."""
    monkeypatch.chdir(tmp_path)
    rows = [(f"caf\u00e9 {i}", "" if i == 4 else f"text {i}", ("it's late", "outage")[i % 2], "x") for i in range(9)]
    with open("train.csv", "w", encoding="latin-1", newline="") as file:
        csv.writer(file).writerows([("the title", "body", "which team", "other"), *rows])
    settings = commands.FitSettings(train_file=("train.csv",), classifier="my classifier", **OPTIONS)
    return settings, fitting.run(settings).content


def parse(command):
    """Return the settings that the shell passes to `fit`."""
    program, name, *flags = shlex.split(command)
    assert (program, name) == ("knnprompt", "fit")
    given = {flag[2:].partition("=")[0]: flag.partition("=")[2] or "True" for flag in flags}
    return options.from_config(commands.FitSettings, given)


def test_the_command_that_look_prints_fits_the_same_classifier(fitted):
    settings, content = fitted
    printed = look.run(commands.LookSettings(classifier="my classifier", suggestions=3)).splitlines()
    again = parse(next(line for line in printed if line.startswith("knnprompt fit")))
    assert again == dataclasses.replace(settings, corrections=("look/suggestions.csv",), overwrite=True)
    done = fitting.run(dataclasses.replace(again, corrections=()))
    assert done.content.origin == content.origin and "the file held this classifier already" in done.notes
    again = parse(refitting.command(content, "mine", further=("to label.csv",)))
    assert again.train_file == ("train.csv", "to label.csv") and again.corrections == ()
    listed = dataclasses.replace(content, options=dataclasses.replace(content.options, class_prior=[0.8, 0.2]))
    assert parse(refitting.command(listed, "mine")).class_prior == settings.class_prior


def test_a_declared_task_is_named_and_a_classifier_of_python_has_no_command(fitted):
    _, content = fitted
    declared = dataclasses.replace(content, task=dataclasses.replace(content.task, name="mood", empty="error"))
    again = parse(refitting.command(declared, "mine"))
    assert (again.task, again.text_columns, again.empty) == ("mood.yaml", (), None)
    for other in (
        dataclasses.replace(content, file_options={}),
        dataclasses.replace(content, options=classifier_options.PublishedOptions()),
        dataclasses.replace(content, task=dataclasses.replace(content.task, name="trec")),
    ):
        assert refitting.command(other, "mine") == ""


def test_options_by_their_default_are_left_out(fitted):
    _, content = fitted
    plain = dataclasses.replace(
        content,
        options=classifier_options.AutoOptions(random_state=commands.SEED),
        model=dataclasses.replace(content.model, name="smollm2"),
        file_options=commands.FitSettings(classifier="x", task="demo").file_options(),
        task=kp.Task.infer(["a", "b"], ["x", "y"]),
    )
    expected = "knnprompt fit --classifier=mine --train_file=train.csv --overwrite --text_columns=text"
    assert refitting.command(plain, "mine") == expected
