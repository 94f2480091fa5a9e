"""From a saved classifier and labelled rows to measures and a page."""

import csv
import dataclasses
import io
import json
import types

import numpy as np
import pytest

import knnprompt_jax as kp
from knnprompt_jax import errors, tables
from knnprompt_jax.classifier import saving
from knnprompt_jax.commands import evaluate_job, unlabelled
from knnprompt_jax.report import page
from knnprompt_jax.settings import commands
from knnprompt_jax.tasks import sources
from knnprompt_jax.tasks.task import Example

SCRIPT = "<script>alert('$1 & $2')</script>"


@pytest.fixture(scope="module")
def classifier() -> "kp.KNNPrompting":
    task = kp.Task("mood", ("text",), "{text}\nMood:", ("7", "3", "x"), ("good", "bad", "odd"))
    train = [("what a day", "7"), ("fine", "7"), ("so dull", "3"), ("awful", "3"), ("a purple cow", "x"), (SCRIPT, "x")]
    return kp.KNNPrompting(kp.demo_model("tiny"), task, demo_shots=0).fit(*zip(*train, strict=True))


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Eleven rows, with their labels in a column that is called otherwise."""
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    texts = ["a dull day", SCRIPT, "fine and dandy", "not so fine", "cow", "what", "dull", "purple", "so", "day", "x y"]
    rows = [{"id": i, "text": text, "mood": "73x"[i % 3]} for i, text in enumerate(texts)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_measures_are_those_of_the_classifiers_predictions(classifier, table):
    examples = sources.load_rows(classifier.task_, "evaluation", path=str(table), label_column="mood")
    measured = evaluate_job.measure(classifier.fitted_, examples)
    texts, labels = [row.fields["text"] for row in examples], [row.label for row in examples]
    assert measured.labels == tuple(classifier.classes_) == ("3", "7", "x")
    assert measured.overall["accuracy"] == classifier.score(texts, labels)
    np.testing.assert_array_equal(measured.probabilities_QC, classifier.predict_proba(texts))


def test_shares_of_votes_are_those_that_promises_compare(monkeypatch):
    """Shares of ten votes for four classes do not sum to 1 exactly: divided by their sum, 0.4 would be below 0.4."""
    shares_QC = np.array([[0.2, 0.4, 0.3, 0.1]])
    assert shares_QC.sum() > 1
    fitted = types.SimpleNamespace(
        classes=np.array(list("abcd")),
        answer=lambda readings, with_neighbours: types.SimpleNamespace(labels=np.array(["b"]), probabilities=shares_QC),
        novelty_scores=lambda readings: np.zeros(1),
    )
    monkeypatch.setattr(evaluate_job, "_read", lambda *arguments: [None])
    measured = evaluate_job.measure(fitted, [Example({"text": "x"}, "a")])
    assert measured.confidence_Q == 0.4


def test_a_single_class_and_an_earlier_page(tmp_path, monkeypatch):
    task = kp.Task("mood", ("text",), "{text}\nMood:", ("7",), ("good",))
    kp.KNNPrompting(kp.demo_model("tiny"), task, k=1, demo_shots=0).fit(["a", "b"], ["7", "7"]).save(tmp_path / "mine")
    (tmp_path / "rows.csv").write_text("text,label\nx,7\ny,7\n")
    place = {
        name: str(tmp_path / path) for name, path in (("classifier", "mine"), ("input", "rows.csv"), ("output", "out"))
    }
    printed = evaluate_job.run(commands.EvaluationSettings(**place))
    assert "Accuracy: 100.0" in printed and "none: needs at least" in printed
    assert json.loads((tmp_path / "out" / "measures.json").read_text())["log_loss"] == 0
    assert (tmp_path / "out" / "index.html").exists()
    with page.folder(place["output"]), pytest.raises(errors.UserError, match="out: another process is writing to it"):
        evaluate_job.run(commands.EvaluationSettings(**place))
    monkeypatch.setattr(page, "missing_libraries", lambda: "a library is missing")
    evaluate_job.run(commands.EvaluationSettings(**place))
    assert not (tmp_path / "out" / "index.html").exists(), "it would have other measures"


def test_an_interrupted_run_is_resumed(classifier, table, tmp_path, monkeypatch):
    monkeypatch.setenv("KNNPROMPT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(unlabelled, "batch_characters", lambda model: 1)  # A row per batch.
    classifier.save(tmp_path / "mine")
    place = {"classifier": str(tmp_path / "mine"), "input": str(table), "output": str(tmp_path / "out")}
    settings, read = commands.EvaluationSettings(**place, label_column="mood"), []
    run_pass = kp.LanguageModel.run_pass

    def interrupted(model, prompts, *rest, **options):
        read.append(prompts.num_prompts)
        if len(read) == 5:
            raise KeyboardInterrupt
        return run_pass(model, prompts, *rest, **options)

    monkeypatch.setattr(kp.LanguageModel, "run_pass", interrupted)
    with pytest.raises(KeyboardInterrupt):
        evaluate_job.run(settings)
    described = evaluate_job.run(settings)
    assert sum(read) == 11 + 1, "the fifth row is read again"
    assert evaluate_job.run(settings) == described == evaluate_job.run(dataclasses.replace(settings, cache_gb=0))
    assert sum(read) == 12 + 11


def test_the_folder_has_everything_and_no_text_acts(classifier, table, tmp_path):
    classifier.save(tmp_path / "mine")
    place = {"classifier": str(tmp_path / "mine"), "input": str(table), "output": str(tmp_path / "out")}
    settings = commands.EvaluationSettings(**place, label_column="mood")
    printed = evaluate_job.run(settings)
    content = json.loads((tmp_path / "out" / "measures.json").read_text(encoding="utf-8"))
    assert (content["model"], content["rows"], content["input"]) == ("tiny", 11, str(table))
    assert f"Accuracy: {100 * content['accuracy']:.1f}" in printed
    assert np.sum(content["confusion"]["counts"]) == 11
    text = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    for name in ("summary", "classes", "calibration", "coverage", "mistakes"):
        assert f'<section id="{name}">' in text
    assert SCRIPT not in text and text.count("<script") == 1
    assert text.index(">id</th>") < text.index(">Line</th>") < text.index(">Prediction</th>")
    assert f"page: {tmp_path / 'out' / 'index.html'}" in printed and (tmp_path / "out" / "measures.csv").is_file()


OTHERS = {"out_of_scope": "others.csv", "label_column": "mood"}


def test_texts_out_of_scope_are_measured_beside_the_rows(classifier, table, tmp_path):
    classifier.save(tmp_path / "mine")
    (tmp_path / "others.txt").write_text("0 1 2 3 ; ; ; {}\n" * 3 + "a purple cow\n", encoding="utf-8")
    place = {"classifier": str(tmp_path / "mine"), "input": str(table), "output": str(tmp_path / "out")}
    options = {"label_column": "mood", "out_of_scope": str(tmp_path / "others.txt"), "reject_novel": 0.2}
    printed = evaluate_job.run(commands.EvaluationSettings(**place, **options))
    measured = json.loads((tmp_path / "out" / "measures.json").read_text(encoding="utf-8"))["out_of_scope"]
    texts = [json.loads(line)["text"] for line in table.read_text(encoding="utf-8").splitlines()]
    labels = ["73x"[number % 3] for number in range(11)]
    is_rejected = classifier.novelty(texts) <= 0.2
    assert measured["rows"] == 4 and measured["recall"] == np.mean(
        classifier.novelty(["0 1 2 3 ; ; ; {}"] * 3 + ["a purple cow"]) <= 0.2
    )
    assert measured["in_scope_rejected"] == pytest.approx(is_rejected.mean())
    answered = classifier.predict(texts, reject_novel=0.2)
    assert measured["in_scope_accuracy"] == pytest.approx(
        np.mean([one == label for one, label in zip(answered, labels, strict=True)])
    )
    assert 0 <= measured["area_under_curve"] <= 1
    assert "Texts out of scope: 4; rejected: novelty p-value at most 0.2." in printed
    page_text = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert '<section id="scope">' in page_text and "Distributions of novelty" in page_text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "no label column 'label', only id, text, mood: name it with --label_column="),
        ({"label_column": "id"}, "rows.jsonl:1: unknown label '0'; choose from 7, 3, x"),
        ({"input": "none.csv"}, "cannot read the file"),
        ({"classifier": "none"}, "none: No such file or directory"),
        ({"input": ""}, "input is required"),
        ({"output": "mine/out"}, "mine is a file, not a folder"),
        ({"reject_novel": 0.5}, "reject_novel: has no effect without --out_of_scope"),
        (
            {"reject_novel": 0.1, **OTHERS},
            "p-value from 6 rows is 0.14; fit at least 9 rows, or choose a larger p-value",
        ),
        (
            {"reject_novel": 0.5, **OTHERS},
            "others.csv:3: '3' is a label of the classifier; leave its rows out of --out",
        ),
        ({"reject_novel": 0.5, **OTHERS, "out_of_scope": "empty.csv"}, "empty.csv: "),
    ],
)
def test_mistakes_are_told_before_the_model_loads(classifier, table, tmp_path, given, message, monkeypatch):
    monkeypatch.chdir(tmp_path)
    classifier.save(tmp_path / "mine")
    (tmp_path / "others.csv").write_text("text,mood\na,\nb,3\n")
    (tmp_path / "empty.csv").write_text("text,mood\n")
    monkeypatch.setattr(saving.Saved, "load_model", None)
    options = {"classifier": str(tmp_path / "mine"), "input": str(table), "output": str(tmp_path / "out"), **given}
    with pytest.raises(errors.UserError, match=message):
        evaluate_job.run(commands.EvaluationSettings(**options))


def test_the_page_needs_packages_and_the_numbers_do_not(classifier, table, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(page, "_LIBRARIES", ("jinja2", "absent_package"))
    classifier.save(tmp_path / "mine")
    place = {"classifier": str(tmp_path / "mine"), "input": str(table), "output": str(tmp_path / "out")}
    printed = evaluate_job.run(commands.EvaluationSettings(**place, label_column="mood"))
    assert "the page needs absent_package: pip install 'knnprompt_jax[report]'" in caplog.text
    assert "Accuracy: " in printed and "page: " not in printed and not (tmp_path / "out" / "index.html").exists()
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"measures.json", "measures.csv", "mistakes.csv"}


@pytest.mark.parametrize(
    ("labels", "words", "titles"),
    [
        (("a_b", "=c"), ("a b", "=c"), ("a_b", "=c")),
        (("0", "1"), ("good", "bad"), ("good", "bad")),
        (("c ", "c"), ("c ", "c"), ("'c '", "c")),
    ],
)
def test_all_mistakes_are_in_a_table_for_spreadsheets(labels, words, titles, monkeypatch):
    """The page shows the first and names classes by words only where a person chose the words."""
    monkeypatch.setattr(evaluate_job, "_MAX_MISTAKES", 1)
    task = kp.Task("own", ("text",), "{text}\nLabel:", labels, words)
    texts = ("=1+1", "fine", "x\ry")
    examples = [
        Example({"text": text}, labels[0], index, f"rows.csv:{index + 2}", {"id": f"-{index}a"})
        for index, text in enumerate(texts)
    ]
    p_QC = np.array([[0.25, 0.75], [1.0, 0.0], [0.125, 0.875]])
    measured = evaluate_job.Measures(labels, np.zeros(3, int), np.array([1, 0, 1]), p_QC)
    content = tables.to_csv(evaluate_job.to_mistakes(measured, examples, task))
    header, *rows = csv.reader(io.StringIO(content, newline=""))
    assert header == ["id", "line", "text", "label", "prediction", "probability", "label_probability"]
    predicted = tables.to_cell(labels[1])
    assert rows == [
        ["'-2a", "4", "x\ry", labels[0], predicted, "0.875", "0.125"],
        ["'-0a", "2", "'=1+1", labels[0], predicted, "0.75", "0.25"],
    ]
    sections = {section.name: section for section in evaluate_job.build(measured, (), examples, task)}
    (listing,) = sections["mistakes"].listings
    assert listing.caption.startswith("The first 1 of 2 mistakes; mistakes.csv has all")
    assert listing.rows == (("-2a", "4", "x\ry", titles[0], titles[1], "0.88"),)


def test_other_shares_of_classes_are_reported_with_what_they_give(tmp_path):
    """Three of four rows are of a class that has a third of the train rows."""
    train = [(f"{word} {number}", label) for number in range(9) for word, label in (("sun", "x"), ("mud", "y"))][:-6]
    rest = [(f"{word} day {number}", label) for number in range(24) for word, label in (("sun", "x"), ("mud", "y"))]
    test = [row for row in rest if row[1] == "y"][:18] + [row for row in rest if row[1] == "x"][:6]
    fitted = kp.AutoClassifier(kp.demo_model("tiny"), experts=("knn",), demo_shots=0).fit(*zip(*train, strict=True))
    fitted.save(tmp_path / "mine")
    (tmp_path / "rows.csv").write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in test))
    paths = {"classifier": tmp_path / "mine", "input": tmp_path / "rows.csv", "output": tmp_path / "out"}
    given = {name: str(path) for name, path in paths.items()}
    printed = evaluate_job.run(commands.EvaluationSettings(**given))
    advice = printed[printed.index("Classes are not as common") :]
    assert "--class_prior=x=0.25,y=0.75 would give accuracy " in advice
    promised = advice.partition("would give accuracy ")[2].partition(" here")[0]
    again = evaluate_job.run(commands.EvaluationSettings(**given, class_prior="x=0.25,y=0.75"))
    assert f"Accuracy: {promised}. " in again and "Classes are not as common" not in again
    (tmp_path / "rows.csv").write_text("text,label\nmud,y\n")
    assert "--class_prior" not in evaluate_job.run(commands.EvaluationSettings(**given)), "it would rule out x"


def test_a_prior_of_the_published_classifier_is_refused(classifier, table, tmp_path):
    classifier.save(tmp_path / "mine")
    settings = commands.EvaluationSettings(
        classifier=str(tmp_path / "mine"), input=str(table), label_column="mood", class_prior="uniform"
    )
    with pytest.raises(errors.UserError, match="mine is KNNPrompting, whose shares of votes have no prior"):
        evaluate_job.run(settings)
