"""Rows to label next: which are read, what their table says, and that `fit` takes it back."""

import csv

import pytest

import knnprompt_jax as kp
from knnprompt_jax import errors, tasks
from knnprompt_jax.report import look
from knnprompt_jax.settings import commands
from knnprompt_jax.tasks import columns as cells

FORMULA = "=SUM(1;2) is what the crown was worth"


@pytest.fixture(scope="module")
def rows():
    """Texts of the demo task, of which the first 24 are train rows, and their labels."""
    loaded = tasks.load_rows(tasks.get("demo"), "train")[:60]
    return [row.fields["sentence"] for row in loaded], [row.label for row in loaded]


@pytest.fixture(scope="module")
def saved(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "mine"
    texts, labels = rows
    model = kp.demo_model("tiny")
    kp.AutoClassifier(model, tasks.get("demo"), experts=("probe",), demo_shots=0).fit(texts[:24], labels[:24]).save(
        path
    )
    return path


def write(path, header, given):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *given])
    return str(path)


def read(path):
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def test_new_rows_are_listed_and_fit_takes_them_back(saved, rows, tmp_path):
    texts = [*rows[0][20:37], rows[0][30].upper(), FORMULA, "labelled already"]
    labels = [*[""] * 19, "2"]
    given = zip(texts, labels, range(len(texts)), strict=True)
    path = write(tmp_path / "new.csv", ("message", "label", "number"), given)
    job = commands.LookSettings(
        classifier=str(saved), input=path, text_columns=("message",), budget=11, output=str(tmp_path / "look")
    )
    printed = look.run(job)
    assert "rows with a label, left out: 1\n" in printed
    assert "rows that repeat a train row or an earlier row, left out: 5\n" in printed
    listed = read(tmp_path / "look" / "to_label.csv")
    assert list(listed[0]) == ["sentence", "label", *cells.ADDED, "number"] and len(listed) == 11
    for row in listed:
        assert cells_text(row) == texts[int(row["number"])] and row["label"] == ""
    page = (tmp_path / "look" / "index.html").read_text(encoding="utf-8")
    assert '<section id="to_label">' in page and page.count('class="point unlabelled"') == 11


def cells_text(row):
    """Return the text of a row without the guard against formulas."""
    return row["sentence"].removeprefix("'") if row["sentence"].startswith("'=") else row["sentence"]


def test_no_row_to_label_is_one_line(saved, rows, tmp_path):
    path = write(tmp_path / "new.csv", ("sentence",), [[text] for text in rows[0][:3]])
    with pytest.raises(errors.UserError, match="no row to label: rows that repeat a train row .* left out: 3$"):
        look.run(commands.LookSettings(classifier=str(saved), input=path, output=str(tmp_path / "look")))


@pytest.mark.parametrize("options", [{"budget": 3}, {"encoding": "cp1252"}, {"text_columns": ("a",)}])
def test_options_of_unlabelled_rows_need_some(saved, options):
    with pytest.raises(errors.UserError, match="has no effect without --input"):
        commands.LookSettings(classifier=str(saved), **options)
