"""The table that goes round: `look` writes it, a person edits it, `fit` reads it, and no text or label changes."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

import knnprompt_jax as kp
from knnprompt_jax import tasks
from knnprompt_jax.cli import command_settings as commands
from knnprompt_jax.commands import fit_job, label_table, look_job
from knnprompt_jax.common import errors, files
from knnprompt_jax.tasks import columns

pytestmark = pytest.mark.usefixtures("loaded_once")

FORMULA = "=SUM(1;2) is what the crown was worth"
ODD = (FORMULA, "'=a quoted formula", "+1 from a\nsecond line", "'tis late", "-5", '\tcaf\u00e9, "it" said')
SCRIPT = "<script>alert('$1 & $2')</script>"


def write(path, header, given):
    pd.DataFrame(given, columns=header).to_csv(path, index=False)


def read(path):
    return pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig").to_dict("records")


@pytest.fixture(scope="module")
def given():
    """Sixty texts of the demo task with their labels, and texts that a spreadsheet would change."""
    rows = tasks.load_rows(tasks.get("demo"), "train")[:60]
    rows = [(f"T-{index}", row.fields["sentence"], f"label {row.label}") for index, row in enumerate(rows)]
    return rows + [(f"T-{index}", text, rows[index % 2][2]) for index, text in enumerate(ODD, 60)]


@pytest.fixture
def work(given, tmp_path, monkeypatch):
    """The job of a fit to 54 of the rows, in the working folder; the other texts are in unlabelled.csv."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "train.csv", ("ticket", "text", "team"), [*given[:48], *given[60:]])
    write(tmp_path / "unlabelled.csv", ("ticket", "text"), [row[:2] for row in given[40:60]])
    write(tmp_path / "script.csv", ("text",), [[SCRIPT]])
    options = {"model": "tiny", "experts": ("means", "probe"), "demo_shots": (0,), "label_column": "team"}
    return commands.FitSettings(train_file="train.csv", classifier="mine", overwrite=True, **options)


def look(**options):
    return look_job.run(commands.LookSettings(classifier="mine", **options))


def labels_of(content):
    return [(row.row, row.fields["text"], row.label) for row in content.rows]


def test_a_table_that_nobody_edited_gives_the_same_classifier_and_the_page_has_no_active_text(work, given, tmp_path):
    first = fit_job.run(work).content
    printed = look(input="unlabelled.csv", budget=7)
    assert "labels to check: 10 of 54\nrows to label: 7, at the end of the table\ntable: look/table.csv" in printed
    table = read("look/table.csv")
    assert list(table[0]) == ["ticket", "text", "team", *columns.ADDED] and len(table) == 54 + 7
    assert [row["ticket"] for row in table[:54]] == [row[0] for row in (*given[:48], *given[60:])]
    assert not any(row["suggested"] or row["checked"] for row in table)
    assert sum(row["reason"].startswith("check: ") for row in table[:54]) >= 10
    new = {row[1] for row in given[48:60]}
    for row in table[54:]:
        assert row["text"] in new and row["team"] == "" and row["ticket"].startswith("T-")
        assert row["reason"].startswith("chosen: ") and "label " in row["reason"]
        assert 0 < float(row["probability"]) < 1 and 0 < float(row["novelty"]) <= 1
        assert (float(row["novelty"]) < 0.05) == row["reason"].endswith("; unlike the train rows")
    again = fit_job.run(dataclasses.replace(work, train_file="look/table.csv", encoding="cp1252")).content
    assert labels_of(again) == labels_of(first) and again.choice == first.choice
    look(input="script.csv")
    assert read("look/table-2.csv")[:61] == table and len(read("look/table-2.csv")) == 61 + 1
    page = (tmp_path / "look/index.html").read_text(encoding="utf-8")
    assert SCRIPT not in page and all(f'<section id="{name}">' in page for name in ("to_label", "suspects"))


def test_earlier_tables_are_kept_even_those_edited_while_the_page_is_drawn(work, tmp_path, monkeypatch):
    fit_job.run(work)
    edited = tmp_path / "look" / commands.TABLE
    build = look_job.build

    def slow(*arguments):
        edited.write_text("edited")
        return build(*arguments)

    monkeypatch.setattr(look_job, "build", slow)
    look()
    assert edited.read_text() == "edited"
    assert all("table: look/table-2.csv\n" in look() for _ in range(2))
    assert sorted(path.name for path in edited.parent.iterdir()) == ["index.html", "table-2.csv", "table.csv"]


def test_reasons_go_on_from_left_to_right_after_labels_from_right_to_left():
    (section,) = look_job.build("table.csv", [("text", "label", "0.1", "chosen: probably שלום, or עטל (94 %)")])
    assert section.listings[0].rows[0][-1] == "chosen: probably שלום\u200e, or עטל\u200e (94\u00a0%)"


def edit(table, changes):
    rows = read(table)
    for number, cells_ in changes.items():
        rows[number] |= cells_
    pd.DataFrame(rows).to_csv(table, index=False)


def test_corrections_new_labels_and_checks_go_round(work, given, tmp_path):
    fit_job.run(work)
    look(input="unlabelled.csv", budget=7)
    doubted = [number for number, row in enumerate(read("look/table.csv")) if row["reason"].startswith("check")]
    edits = {number: {"checked": "x"} for number in doubted[2:]}
    edits |= {doubted[0]: {"suggested": "'=odd"}, doubted[1]: {"team": "label 2"}, 55: {"team": "'=odd"}}
    edit(tmp_path / "look/table.csv", edits)
    done = fit_job.run(dataclasses.replace(work, train_file="look/table.csv"))
    labels = {row.row: row.label for row in done.content.rows}
    assert len(labels) == 54 + 1 and labels[doubted[0]] == "=odd" and labels[doubted[1]] == "label 2"
    assert labels[55] == "=odd" and done.content.task.fields == ("text",)
    assert label_table.count_chosen(done.content) == 1
    assert "look chose 1 of the rows; as it prefers difficult ones" in fit_job.summarize(done)
    look()
    table = read("look/table-2.csv")
    assert list(table[0]) == ["ticket", "text", "team", *columns.ADDED] and len(table) == 61
    assert table[doubted[0]]["team"] == "'=odd" and table[doubted[0]]["checked"] == "x"
    assert table[doubted[1]]["team"] == "label 2" and table[55]["team"] == "'=odd" and table[56]["team"] == ""
    assert not any(row["suggested"] for row in table)
    assert all(table[number]["checked"] == "x" and not table[number]["reason"] for number in [doubted[0], *doubted[2:]])
    assert all(row["reason"].startswith("chosen: ") for row in table[54:])


def test_rows_that_a_fit_leaves_out_stay_in_the_table(work, tmp_path):
    given = [*[("a b", "x", "1"), ("c", "y", "2")] * 2, ("d", "x", "3")]
    write(tmp_path / "train.csv", ("text", "team", "note"), given)
    content = fit_job.run(dataclasses.replace(work, text_columns=("text",), shots=1)).content
    rows = label_table.train_rows(content)
    assert len(content.rows) == 2 and [*rows[3].values()] == ["c", "y", "2"] and len(rows) == 5


def test_rows_of_python_make_a_table_and_contradictions_are_named(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    task = tasks.get("demo")
    rows = tasks.load_rows(task, "train")[:40]
    texts = [row.fields["sentence"] for row in rows]
    labels = [row.label for row in rows]
    other = next(label for label in task.labels if label != labels[3])
    classifier = kp.AutoClassifier(tiny, task, experts=("probe",), demo_shots=0)
    classifier.fit([*texts, texts[3].upper()], [*labels, other]).save("mine")
    look()
    table = read("look/table.csv")
    assert [row["sentence"] for row in table[:40]] == texts and [row["label"] for row in table] == [*labels, other]
    assert f"this text has the label {other}, too" in table[3]["reason"]
    assert f"this text has the label {labels[3]}, too" in table[40]["reason"]


def test_invalid_tables_and_inputs_are_one_line(work, given, tmp_path):
    content = fit_job.run(work).content
    files.write(tmp_path / "other/index.html", "the page of another command")
    with pytest.raises(errors.UserError, match="other/index.html: not a page of look; choose another --output="):
        look(output="other")
    write(tmp_path / "known.csv", ("text",), [[text] for _, text, _ in given[:3]])
    with pytest.raises(errors.UserError, match="known.csv: no row to label: 3 rows have a label, or the text of"):
        look(input="known.csv")
    clash = dataclasses.replace(content, table=(("text", "team", "reason"), ("a", "b", "c")))
    with pytest.raises(errors.UserError, match="column 'reason' of the train table: look adds a column of this name"):
        label_table.train_rows(clash)
    with pytest.raises(errors.UserError, match="--budget: has no effect without --input"):
        commands.LookSettings(classifier="mine", budget=3)


def test_labels_are_ranked_by_their_probability_if_classes_are_more_equally_common():
    """Against a loop over the definitions, for random classes and neighbours."""
    rng = np.random.default_rng(3)
    y_N = rng.integers(0, 3, 37)
    near_NK = rng.integers(0, 37, (37, 5))
    shares_NC = rng.dirichlet(np.ones(3), 37)
    found = label_table.labels_by_probability(y_N, shares_NC, near_NK)
    scale_C = np.sqrt([np.mean(y_N == each) for each in range(3)])
    for anchor, label in enumerate(y_N):
        balanced_C = shares_NC[anchor] / scale_C / sum(shares_NC[anchor] / scale_C)
        row = found.loc[anchor]
        assert row.probability == pytest.approx(balanced_C[label])
        assert row.differing == sum(y_N[other] != label for other in near_NK[anchor])
        assert row.suggested == (balanced_C.argmax() if balanced_C.max() - balanced_C[label] > 0.5 else -1)
    assert found.probability.is_monotonic_increasing and {-1} < set(found.suggested)
