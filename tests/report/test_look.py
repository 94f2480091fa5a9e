"""The page of a saved classifier's anchors."""

import numpy as np
import pytest

import knnprompt_jax as kp
from knnprompt_jax import errors, tasks
from knnprompt_jax.report import anchor_listings, drawing, look

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
    text = look.run(look.LookOptions(str(store), str(tmp_path / "page"))).read_text(encoding="utf-8")
    for name in ("map", "classes", "calibration", "misleading", "suspects", "duplicates"):
        assert f'<section id="{name}">' in text
    assert "57 anchors of task demo" in text
    assert SCRIPT not in text
    assert text.count("<script") == 2


def test_equal_texts_are_listed_first_with_their_labels(classifier):
    rows = anchor_listings.duplicates(look.read(classifier)).rows
    equal = [row for row in rows if row[4] == "equal texts"]
    assert len(equal) == 2
    assert equal == list(rows[:2])
    assert sorted(row[1] == row[3] for row in equal) == [False, True]


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
        look.run(look.LookOptions(str(store.parent / spoil), str(tmp_path / "page"), points))
    assert "\n" not in str(raised.value)
