"""From a saved classifier and labelled rows to measures and a page."""

import json
import re

import numpy as np
import pytest

import knnprompt_jax as kp
from knnprompt_jax.classifier import classifier_file
from knnprompt_jax.cli import command_settings as commands
from knnprompt_jax.commands import evaluate_job
from knnprompt_jax.common import errors
from knnprompt_jax.report.measures import Measures
from knnprompt_jax.tasks.table_file import Table
from knnprompt_jax.tasks.task import Example

pytestmark = pytest.mark.usefixtures("loaded_once")

SCRIPT = "<script>alert('$1 & $2')</script>"


@pytest.fixture(scope="module")
def classifier(tiny) -> "kp.KNNPrompting":
    task = kp.Task("mood", ("text",), "{text}\nMood:", ("7", "3", "x"), ("good", "bad", "odd"))
    train = [("what a day", "7"), ("fine", "7"), ("so dull", "3"), ("awful", "3"), ("a purple cow", "x"), (SCRIPT, "x")]
    return kp.KNNPrompting(tiny, task, demo_shots=0).fit(*zip(*train, strict=True))


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Eleven rows, with their labels in a column that is called otherwise."""
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    texts = ["a dull day", SCRIPT, "fine and dandy", "not so fine", "cow", "what", "dull", "purple", "so", "day", "x y"]
    rows = [{"id": i, "text": text, "mood": "73x"[i % 3]} for i, text in enumerate(texts)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_measures_are_those_of_the_classifiers_predictions(classifier, table):
    examples = Table(str(table), "mood").labelled(classifier.task_)
    measured = evaluate_job.measure(classifier.fitted_, examples)
    texts = [row.fields["text"] for row in examples]
    labels = [row.label for row in examples]
    assert measured.labels == tuple(classifier.classes_) == ("3", "7", "x")
    assert measured.overall["accuracy"] == classifier.score(texts, labels)
    np.testing.assert_array_equal(measured.probabilities_QC, classifier.predict_proba(texts))


@pytest.fixture
def settings(classifier, table, tmp_path):
    classifier.save(tmp_path / "mine")

    def make(**options):
        places = {"classifier": str(tmp_path / "mine"), "input": str(table), "output": str(tmp_path / "out")}
        return commands.EvaluationSettings(**places | {"label_column": "mood"} | options)

    return make


def test_the_folder_has_everything_and_no_text_acts(settings, table, tmp_path):
    printed = evaluate_job.run(settings())
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"index.html", "measures.json", "mistakes.csv"}
    content = json.loads((tmp_path / "out" / "measures.json").read_text(encoding="utf-8"))
    assert (content["model"], content["rows"], content["input"]) == ("tiny", 11, str(table))
    assert f"{100 * content['accuracy']:.1f}" in re.search("Accuracy .*", printed)[0]
    assert np.sum(content["confusion"]["counts"]) == 11
    assert content["certainty"][-1]["wrong"] == 11 - round(11 * content["accuracy"])
    text = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    for name in ("summary", "mistakes", "classes", "certainty"):
        assert f'<section id="{name}">' in text
    assert SCRIPT not in text and text.count("<script") == 1
    assert text.index(">id</th>") < text.index(">line</th>") < text.index(">prediction</th>")
    assert f"page: {tmp_path / 'out' / 'index.html'}" in printed


def test_texts_out_of_scope_are_measured_beside_the_rows(classifier, settings, table, tmp_path):
    others = ["0 1 2 3 ; ; ; {}"] * 3 + ["a purple cow"]
    (tmp_path / "others.txt").write_text("\n".join(others), encoding="utf-8")
    printed = evaluate_job.run(settings(out_of_scope=str(tmp_path / "others.txt"), reject_novel=0.2))
    measured = json.loads((tmp_path / "out" / "measures.json").read_text(encoding="utf-8"))["out_of_scope"]
    texts = [json.loads(line)["text"] for line in table.read_text(encoding="utf-8").splitlines()]
    labels = ["73x"[number % 3] for number in range(11)]
    assert measured["rows"] == 4 and measured["recall"] == np.mean(classifier.novelty(others) <= 0.2)
    assert measured["in_scope_rejected"] == pytest.approx(np.mean(classifier.novelty(texts) <= 0.2))
    answered = classifier.predict(texts, reject_novel=0.2)
    assert measured["in_scope_accuracy"] == pytest.approx(np.mean(np.array(labels) == answered))
    assert 0 <= measured["area_under_curve"] <= 1
    assert "Texts out of scope: 4; rejected: novelty p-value at most 0.2." in printed
    assert '<section id="scope">' in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"label_column": None}, "no label column 'label', only id, text, mood: name it with --label_column="),
        ({"reject_novel": 0.5}, "reject_novel: has no effect without --out_of_scope"),
        ({"reject_novel": 0.1, "out_of_scope": "empty.csv"}, "p-value from 6 rows is 0.14; fit at least 9 rows"),
        ({"class_prior": "uniform"}, "mine is KNNPrompting, whose shares of votes have no prior"),
    ],
)
def test_mistakes_are_reported_before_the_model_loads(settings, tmp_path, given, message, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.csv").write_text("text,mood\n")
    monkeypatch.setattr(classifier_file.Saved, "load_model", None)
    with pytest.raises(errors.UserError, match=message):
        evaluate_job.run(settings(**given))


def test_mistakes_are_listed_with_the_most_probable_first():
    labels = ("a_b", "=c")
    task = kp.Task("own", ("text",), "{text}\nLabel:", labels, ("good", "bad"))
    examples = [
        Example({"text": text}, labels[0], index, f"rows.csv:{index + 2}", {"id": f"-{index}a"})
        for index, text in enumerate(("=1+1", "fine", "x\ry"))
    ]
    p_QC = np.array([[0.25, 0.75], [1.0, 0.0], [0.125, 0.875]])
    measured = Measures(labels, np.zeros(3, int), np.array([1, 0, 1]), p_QC)
    mistakes = evaluate_job.list_mistakes(measured, examples, task)
    assert mistakes.headers == ("id", "line", "text", "label", "prediction", "probability", "label_probability")
    assert mistakes.rows[0] == ("-2a", "4", "x\ry", "a_b", "=c", "0.875", "0.125")
    assert mistakes.rows[1] == ("-0a", "2", "=1+1", "a_b", "=c", "0.750", "0.250")


def test_other_shares_of_classes_are_reported_with_what_they_give(tiny, tmp_path):
    """Three of four rows are of a class that has a third of the train rows."""
    train = [(f"day {number}", "xxy"[number % 3]) for number in range(12)]
    test = [(f"sunny day {number}", "xyyy"[number % 4]) for number in range(24)]
    fitted = kp.AutoClassifier(tiny, experts=("knn",), demo_shots=0).fit(*zip(*train, strict=True))
    fitted.save(tmp_path / "mine")
    (tmp_path / "rows.csv").write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in test))
    paths = {"classifier": tmp_path / "mine", "input": tmp_path / "rows.csv", "output": tmp_path / "out"}
    given = {name: str(path) for name, path in paths.items()}
    printed = evaluate_job.run(commands.EvaluationSettings(**given))
    advice = printed[printed.index("Classes are not as common") :]
    assert "--class_prior=x=0.25,y=0.75 would give accuracy " in advice
    promised = advice.partition("would give accuracy ")[2].partition(" here")[0]
    again = evaluate_job.run(commands.EvaluationSettings(**given, class_prior="x=0.25,y=0.75"))
    assert promised in re.search("Accuracy .*", again)[0] and "Classes are not as common" not in again
    (tmp_path / "rows.csv").write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in test[:3]))
    assert "--class_prior" not in evaluate_job.run(commands.EvaluationSettings(**given)), "three rows prove nothing"
    (tmp_path / "rows.csv").write_text("text,label\nmud,y\n")
    assert "--class_prior" not in evaluate_job.run(commands.EvaluationSettings(**given)), "it would rule out x"
