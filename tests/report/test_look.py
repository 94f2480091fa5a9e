"""The page of a saved classifier's anchors."""

import csv
import dataclasses

import pandas as pd
import pytest

import knnprompt_jax as kp
from knnprompt_jax import errors, tasks
from knnprompt_jax.report import anchors as anchors_lib
from knnprompt_jax.report import drawing, look, page
from knnprompt_jax.runs import corrections
from knnprompt_jax.settings import commands

SCRIPT = "<script>alert('$1 & $2')</script>"


@pytest.fixture(scope="module")
def classifier() -> "kp.KNNPrompting":
    """Fitted on rows of the demo task, of which one is a script, one occurs twice and one has a wrong label."""
    task = tasks.get("demo")
    rows = tasks.load_rows(task, "train")[:60]
    texts, labels = [row.fields["sentence"] for row in rows], [row.label for row in rows]
    texts += [SCRIPT, texts[31], texts[32]]
    labels += [labels[0], labels[31], next(label for label in task.labels if label != labels[32])]
    return kp.KNNPrompting(kp.demo_model("tiny"), task, demo_shots=1).fit(texts, labels)


@pytest.fixture(scope="module")
def saved(classifier, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "mine"
    classifier.save(folder)
    return folder


def test_the_page_has_every_part_and_no_active_text(saved, tmp_path):
    printed = look.run(commands.LookSettings(classifier=str(saved), output=str(tmp_path / "page")))
    assert printed.endswith(f"\npage: {tmp_path / 'page' / 'index.html'}")
    with (tmp_path / "page" / commands.SUGGESTIONS).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    count = sum(bool(row["suggested"]) for row in rows)
    assert printed.startswith(
        f"labels to check: {len(rows)} of 57, {count} with another label suggested; 6 demonstrations"
    )
    assert 10 <= len(rows) < 15 and "next: in suggestions.csv, write x into `checked`" in printed
    text = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    for name in ("map", "classes", "calibration", "suspects"):
        assert f'<section id="{name}">' in text
    assert "57 anchors of task demo" in text and (tmp_path / "page" / commands.SUGGESTIONS).is_file()
    assert SCRIPT not in text
    assert text.count("<script") == 2


def test_two_runs_with_one_folder_exclude_each_other(saved, tmp_path):
    with page.folder(str(tmp_path / "page")), pytest.raises(errors.UserError, match="page: another process is writing"):
        look.run(commands.LookSettings(classifier=str(saved), output=str(tmp_path / "page")))


def test_edited_suggestions_are_kept(saved, tmp_path):
    settings = commands.LookSettings(classifier=str(saved), output=str(tmp_path))
    edited = tmp_path / commands.SUGGESTIONS
    look.run(settings)
    first = edited.read_bytes()
    edited.write_text("id,label\n3,billing\n")
    both = f"--corrections={edited},{tmp_path / 'suggestions-2.csv'}\n"
    assert all(both in look.run(settings) for _ in range(2))
    assert edited.read_text() == "id,label\n3,billing\n" and (tmp_path / "suggestions-2.csv").read_bytes() == first


def test_an_edit_while_the_page_is_drawn_is_kept(saved, tmp_path, monkeypatch):
    settings = commands.LookSettings(classifier=str(saved), output=str(tmp_path))
    edited = tmp_path / commands.SUGGESTIONS
    look.run(settings)
    build = look.build

    def slow(*arguments):
        edited.write_text("edited")
        return build(*arguments)

    monkeypatch.setattr(look, "build", slow)
    look.run(settings)
    assert edited.read_text() == "edited"


def test_a_cut_listing_says_so(classifier, monkeypatch):
    texts = {"text": ["'=x", "b", "c"], "label": ["a", "b", "a"], "suggested": ["", "", "b"], "checked": [""] * 3}
    table = pd.DataFrame({"id": [5, 3, 11], **texts})
    for most, caption in ((2, "The first 2 of 3 rows of the table."), (3, "The rows of the table.")):
        monkeypatch.setattr(look, "_MAX_ROWS", most)
        with drawing.style():
            (listing,) = look.build(look.classify_anchors(classifier.fitted_), table)[0].listings
        assert listing.caption.startswith(f"{caption} Order: ")
        assert (listing.headers, len(listing.rows)) == (("id", "text", "label", "suggested"), most)
        assert listing.rows[0] == ("5", "=x", "a", "")


def test_a_small_map_shows_some_anchors(classifier, monkeypatch):
    monkeypatch.setattr(look, "_MAX_POINTS", 13)
    with drawing.style():
        anchors = look.classify_anchors(classifier.fitted_)
        sections = look.build(anchors, anchors_lib.suggestions(anchors, 3))
    (shown,) = next(section for section in sections if section.name == "map").maps
    assert len(shown.points) == 13 and "13 of 57 anchors" in shown.caption
    assert all(index < 13 for point in shown.points for index, _ in point.neighbours)


@pytest.mark.parametrize(
    ("path", "output", "message"),
    [
        ("none", "page", "none: No such file or directory"),
        ("mine", "mine/look/page", "mine is a file, not a folder"),
    ],
)
def test_invalid_input_gives_a_one_line_error_and_writes_nothing(saved, path, output, message):
    before = sorted(saved.parent.rglob("*"))
    with pytest.raises(errors.UserError, match=message):
        paths = {"classifier": str(saved.parent / path), "output": str(saved.parent / output)}
        look.run(commands.LookSettings(**paths))
    assert sorted(saved.parent.rglob("*")) == before


def test_suggestions_are_read_back(classifier, tmp_path):
    """The suggestions include the row with a wrong label.

    Another example has its text, and most of its neighbours have the right label.
    """
    anchors = look.classify_anchors(classifier.fitted_)
    path = tmp_path / commands.SUGGESTIONS
    anchors_lib.suggestions(anchors, 57).to_csv(path, index=False)
    with path.open(newline="", encoding="utf-8") as file:
        rows = {int(row["id"]): row for row in csv.DictReader(file)}
    wrong, given = rows[62], classifier.anchors_[62]
    assert (wrong["text"], wrong["label"]) == (given.fields["sentence"], given.label)
    (same,) = (row for row in [*classifier.anchors_.values(), *classifier.demonstrations_] if row.row == 32)
    kind = "anchor" if 32 in classifier.anchors_ else "demonstration"
    assert wrong["same_text"] == f"{kind} 32: {same.label!r}"
    wanted = {number: row["suggested"] for number, row in rows.items() if row["suggested"]}
    examples = [*classifier.demonstrations_, *classifier.anchors_.values()]
    assert corrections.read(str(path), "utf-8", classifier.task_, examples) == (wanted, frozenset())
    assert {number for number, *_ in anchors.demonstrations}.isdisjoint(anchors.ids) and anchors.demonstrations
    odd = dataclasses.replace(anchors, user_ids=[{"id": "\ud800"}] * len(anchors.texts))
    assert set(anchors_lib.suggestions(odd, 5).iloc[:, 1]) == {"\ud800"}
