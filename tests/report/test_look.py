"""The page of a saved classifier's anchors."""

import csv

import numpy as np
import pytest

import knnprompt_jax as kp
from knnprompt_jax import errors, tasks
from knnprompt_jax.classifier import contents
from knnprompt_jax.report import anchor_listings, drawing, look, neighbourhood, suggestions
from knnprompt_jax.runs import corrections

SCRIPT = "<script>alert('$1 & $2')</script>"


@pytest.fixture(scope="module")
def classifier() -> "kp.KNNPrompting":
    """Fitted on rows of the demo task, of which one is a script, one occurs twice and one has a wrong label."""
    task = tasks.get("demo")
    rows = tasks.load_rows(task, "train")[:60]
    texts, labels = [row.fields["sentence"] for row in rows], [row.label for row in rows]
    texts += [SCRIPT, texts[31], texts[32]]
    labels += [labels[0], labels[31], next(label for label in task.labels if label != labels[32])]
    return kp.KNNPrompting(kp.demo_model("tiny"), task, k=3, distance="forward", calibrated=False, demo_shots=1).fit(
        texts, labels
    )


@pytest.fixture(scope="module")
def store(classifier, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "mine"
    classifier.save(folder)
    return folder


def test_anchors_are_classified_by_the_others(classifier):
    anchors = look.read(classifier)
    _, ids_Nk = classifier.kneighbors()
    places = {number: place for place, number in enumerate(classifier.store_.ids_N.tolist())}
    assert anchors.near_Nk[:, : classifier.k].tolist() == [
        [places[number] for number in row] for row in ids_Nk.tolist()
    ]
    for row, predicted in zip(anchors.y_N[anchors.near_Nk[:, : classifier.k]], anchors.predicted_N, strict=True):
        assert np.bincount(row).argmax() == predicted


def test_page_has_every_part_and_no_text_acts(store, tmp_path):
    text = look.run(look.LookOptions(store=str(store), output=str(tmp_path / "page"))).page.read_text(encoding="utf-8")
    for name in ("map", "classes", "calibration", "misleading", "suspects", "duplicates"):
        assert f'<section id="{name}">' in text
    assert "57 anchors of task demo" in text
    assert SCRIPT not in text
    assert text.count("<script") == 2


def test_equal_texts_are_listed_first_with_their_labels(classifier):
    rows = anchor_listings.duplicates(look.read(classifier)).rows
    equal = [row for row in rows if row[-1] == "equal texts"]
    assert len(equal) == 2
    assert equal == list(rows[:2])
    assert sorted(row[2] == row[5] for row in equal) == [False, True]


def test_a_small_map_shows_some_anchors_and_only_their_neighbours(classifier):
    with drawing.style():
        shown = look.build(look.read(classifier), points=13)[0].maps[0]
    assert len(shown.points) == 13
    assert all(index < 13 for point in shown.points for index, _ in point.neighbours)
    assert "13 of 57 anchors" in shown.caption


@pytest.mark.parametrize(
    ("spoil", "points", "message"),
    [("mine", 0, "points=0: at least 1"), ("none", 9, "not a saved classifier")],
)
def test_mistakes_are_told_in_one_line(store, tmp_path, spoil, points, message):
    with pytest.raises(errors.UserError, match=message) as raised:
        look.run(look.LookOptions(store=str(store.parent / spoil), output=str(tmp_path / "page"), points=points))
    assert "\n" not in str(raised.value)


def test_suggestions_are_read_back(classifier, tmp_path):
    """The row with a wrong label among them: another anchor has its text, and most of its neighbours the right label."""
    anchors, path = look.read(classifier), tmp_path / suggestions.FILE
    path.write_text(suggestions.to_csv(anchors), encoding="utf-8")
    with path.open(newline="", encoding="utf-8") as file:
        rows = {int(row["id"]): row for row in csv.DictReader(file)}
    wrong, right = rows[62], classifier.anchors_[32].label if 32 in classifier.anchors_ else None
    assert (
        wrong["text"] == classifier.anchors_[62].fields["sentence"] and wrong["label"] == classifier.anchors_[62].label
    )
    assert right is None or f"anchor 32 is the same text, labelled {right!r}" in wrong["why"]
    content = contents.of(classifier)
    wanted = {number: row["suggested"] for number, row in rows.items() if row["suggested"]}
    assert corrections.read(str(path), "utf-8", content).labels == wanted
    assert [int(row[0]) for row in anchor_listings.suspects(anchors).rows] == list(wanted)[:20]


def test_suggestions_are_no_formulas_and_read_back_all_the_same(tmp_path):
    world = {"labels": ("a", "b"), "names": ("=a", "b"), "k": 1, "unit": "nats", "hidden_NE": np.zeros((3, 2))}
    near_Nk, y_N = np.array([[1, 2], [0, 2], [0, 1]]), np.array([1, 1, 0])
    nothing = np.zeros((3, 2))
    world |= {"near_Nk": near_Nk, "distances_Nk": nothing, "predicted_N": y_N, "shares_NC": nothing}
    anchors = neighbourhood.ClassifiedAnchors(ids=(3, 5, 8), texts=("=1+1", "x", "X "), y_N=y_N, **world)
    assert suggestions.to_csv(anchors).splitlines() == [
        "id,text,label,suggested,why",
        "8,X ,'=a,b,\"2 of the 2 nearest anchors have the suggested label; anchor 5 is the same text, labelled 'b'\"",
        "5,x,b,,\"anchor 8 is the same text, labelled '=a'\"",
    ]
    (tmp_path / suggestions.FILE).write_text(suggestions.to_csv(anchors), encoding="utf-8")
    task = tasks.Task("t", ("text",), "{text}:", anchors.names, ("x", "y"))
    rows = zip(anchors.ids, anchors.texts, y_N.tolist(), strict=True)
    kept = tuple(tasks.Example({"text": text}, anchors.names[label], number) for number, text, label in rows)
    content = contents.Content(
        task=task, parameters={}, labels=anchors.names, num_rows=9, demonstrations=(), anchors=kept
    )
    assert corrections.read(str(tmp_path / suggestions.FILE), "utf-8", content).labels == {8: "b"}
