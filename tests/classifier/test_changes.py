"""Anchors of new classes, with other labels and taken away: as if all had been fitted at once, without a pass over what is there."""

import numpy as np
import pytest

import knnprompt_jax as kp
from knnprompt_jax import errors
from knnprompt_jax.settings.stores import StoreOptions

TEXTS = ["red", "green", "blue", "hot", "cold", "up", "down"]
LABELS = ["no", "yes", "no", "yes", "no", "yes", "no"]
KINDS = [("factored", "kl"), ("dense", "reverse_kl"), ("dense", "kl_labels"), ("dense", "reverse_kl_labels")]


def made(model, labels, words, **options):
    task = kp.Task("mood", ("text",), "{text}\nIt is", labels, words)
    published = {"k": 1, "demo_shots": 0}
    return kp.KNNPrompting(model, task, **published | options)


def of_store(kind, distance):
    return {"store_options": StoreOptions(kind=kind), "distance": distance}


@pytest.fixture
def changed(model):
    return made(model, ("no", "yes"), ("bad", "good")).fit(TEXTS, LABELS)


def same(ours, theirs, texts):
    for mine, other in zip(ours.kneighbors(texts, 3), theirs.kneighbors(texts, 3), strict=True):
        np.testing.assert_allclose(mine, other, atol=2e-5)
    np.testing.assert_array_equal(ours.predict(texts), theirs.predict(texts))
    np.testing.assert_allclose(ours.predict_proba(texts), theirs.predict_proba(texts), atol=1e-5)
    np.testing.assert_array_equal(ours.classes_, theirs.classes_)


@pytest.mark.parametrize("collection", [set, dict.fromkeys, iter, np.array, tuple])
def test_ids_come_in_any_collection(changed, collection):
    assert list(changed.remove(collection([1, 4])).anchors_) == [0, 2, 3, 5, 6]
    assert changed.remove([]) is changed and changed.relabel([], []) is changed


def test_as_many_anchors_as_k_must_be_left(model):
    classifier = made(model, ("no", "yes"), ("bad", "good"), k=3).fit(TEXTS, LABELS)
    with pytest.raises(errors.UserError, match="k=3: there are 2 anchors; choose k ≤ 2"):
        classifier.remove([0, 1, 2, 3, 4])
    assert len(classifier.anchors_) == 7 and len(classifier.remove([0, 1, 2, 3]).predict(TEXTS)) == 7


def test_a_chosen_rule_takes_fewer_neighbours_if_anchors_are_removed(model):
    classifier = kp.AutoClassifier(model, made(model, ("no", "yes"), ("bad", "good")).task, k=3, demo_shots=0)
    assert classifier.fit(TEXTS, LABELS).remove([0, 1, 2, 3, 4]).rule_.k == 2


def test_a_new_fit_forgets_the_file_of_the_earlier_rows(changed):
    changed.source_ = {"encoding": "cp1252"}
    assert changed.fit(TEXTS, LABELS).source_ == {}


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([True] * 7, "id True is not an integer: give the ids of anchors"),
        (["1"], "id '1' is not an integer"),
        ([1.0], "id 1.0 is not an integer"),
        ("1", "ids='1': give several ids, as a list"),
        (b"\x01", "give several ids, as a list"),
        (np.array(3), "give several ids, as a list"),
        (3, "ids=3: give several ids"),
    ],
)
def test_what_is_no_id_is_refused(changed, ids, message):
    for change in (changed.remove, lambda ids: changed.relabel(ids, ["no"] * 7)):
        with pytest.raises(errors.UserError, match=message):
            change(ids)
    assert len(changed.anchors_) == 7


def test_rows_that_are_left_out_keep_their_numbers(model):
    task = kp.Task("mood", ("text",), "{text}\nIt is", ("no", "yes"), ("bad", "good"), empty="skip")
    classifier = kp.KNNPrompting(model, task, k=1, demo_shots=0).fit(TEXTS, LABELS)
    classifier.partial_fit(["", "near"], ["no", "yes"]).partial_fit(["", ""], [None, "no"]).partial_fit(["far"], ["no"])
    assert list(classifier.anchors_)[-2:] == [8, 11] and classifier.num_rows_ == 12


@pytest.mark.parametrize(("kind", "distance"), [*KINDS[:2], KINDS[3]])
def test_a_new_class_is_as_if_it_had_been_there(model, tmp_path, kind, distance):
    more, labels = ["left", "right", "far"], ["so_so", "yes", "other"]
    grown = made(model, ("no", "yes"), ("bad", "good"), **of_store(kind, distance)).fit(TEXTS, LABELS)
    read = model.statistics.prompts
    grown.partial_fit(more, labels)
    assert model.statistics.prompts <= read + 3  # Less where these prompts are among those read last.
    every, words = ("no", "yes", "other", "so_so"), ("bad", "good", "other", "so so")
    whole = made(model, every, words, **of_store(kind, distance)).fit(TEXTS + more, LABELS + labels)
    assert grown.task == whole.task
    same(grown, whole, [*TEXTS, *more, "near"])
    grown.save(tmp_path / "saved")
    read = model.statistics.prompts
    loaded = kp.load(tmp_path / "saved", model)
    assert model.statistics.prompts == read and loaded.task == whole.task
    same(loaded, whole, [*more, "near"])
    np.testing.assert_array_equal(loaded.states_.hidden_NE, grown.states_.hidden_NE)
    assert len(loaded.states_) == 10


@pytest.mark.parametrize(("kind", "distance"), KINDS[::2])
def test_relabelled_and_removed_anchors_are_as_if_fitted_so(model, kind, distance):
    options = of_store(kind, distance)
    changed = made(model, ("no", "yes"), ("bad", "good"), **options).fit(TEXTS, LABELS)
    read = model.statistics.prompts
    changed.relabel(np.array([3, 0]), ["no", "so_so"]).remove([5])
    assert model.statistics.prompts == read
    kept = [0, 1, 2, 3, 4, 6]
    labels = ["so_so", "yes", "no", "no", "no", "no"]
    expected = made(model, ("no", "yes", "so_so"), ("bad", "good", "so so"), **options)
    expected.fit([TEXTS[row] for row in kept], labels)
    assert [changed.anchors_[row].label for row in kept] == labels
    np.testing.assert_array_equal(changed.predict(TEXTS), expected.predict(TEXTS))
    np.testing.assert_allclose(changed.kneighbors(TEXTS)[0], expected.kneighbors(TEXTS)[0], atol=2e-5)


def test_a_class_without_anchors_is_dropped(model, changed, capsys):
    changed.relabel([0, 2], ["on", "on"])
    assert (
        changed.classes_.tolist() == ["no", "on", "yes"]
        and "new class 'on', whose label word is 'on'\n" in capsys.readouterr().err
    )
    changed.relabel([0], ["no"]).remove([2])
    assert changed.classes_.tolist() == ["no", "yes"] and not capsys.readouterr().err
    changed.relabel([0], ["yess"])
    assert "new class 'yess', whose label word is 'yess'; the class 'yes' is similar" in capsys.readouterr().err
    changed.relabel([0], ["no"])
    kept = [0, 1, 3, 4, 5, 6]
    expected = made(model, ("no", "yes"), ("bad", "good"))
    expected.fit([TEXTS[row] for row in kept], [LABELS[row] for row in kept])
    np.testing.assert_array_equal(changed.predict_proba(TEXTS), expected.predict_proba(TEXTS))


@pytest.mark.parametrize(
    ("words", "new", "expected"),
    [(("bad", "good"), "so_so", "so so"), (("bad", "so so"), "so_so", "so_so"), (("bad", "so_so"), "so_so ", "so so ")],
)
def test_a_new_label_word_is_another_than_those_there_are(words, new, expected):
    task = kp.Task("mood", ("text",), "{text}:", ("no", "yes"), words).with_labels([new, "no"])
    assert task.label_words == (*words, expected.strip())


def test_a_label_word_in_the_place_of_its_label_is_told(changed):
    with pytest.raises(errors.UserError, match="'good' is not a label but the word of 'yes': choose from no, yes"):
        changed.partial_fit(["left"], ["good"])


def test_classes_that_share_a_token_are_refused_where_tokens_are_compared(model):
    """The last token of both words is that of " day"."""
    options = {"label_token": "last"}
    by_words, by_all = (
        made(model, ("no", "yes"), ("bad", "good day"), distance=distance, **options).fit(TEXTS, LABELS)
        for distance in ("kl_labels", "kl")
    )
    before, read = by_words.predict(TEXTS), model.statistics.prompts
    with pytest.raises(kp.UserError, match="'good day' and 'another day' end in the same token"):
        by_words.partial_fit(["x"], ["another_day"])
    assert model.statistics.prompts == read and by_words.task.labels == ("no", "yes")
    np.testing.assert_array_equal(by_words.predict(TEXTS), before)
    assert by_all.partial_fit(["x"], ["another_day"]).predict(["x"]) == ["another_day"]


@pytest.mark.parametrize(
    ("ids", "labels", "message"),
    [
        ([99], ["no"], "id 99 is not in the store"),
        ([1, 2], ["no"], "2 ids, 1 labels"),
        ([1, 2, 1], ["no", "no", "yes"], "id 1 is given 2 times"),
        ([1], [1.5], "label 0: label 1.5 is a float"),
        ([1], [" "], "label 0: the label is missing"),
    ],
)
def test_mistakes_change_nothing(changed, ids, labels, message):
    with pytest.raises(kp.UserError, match=message):
        changed.relabel(ids, labels)
    assert [example.label for example in changed.anchors_.values()] == LABELS and changed.task.num_classes == 2


def test_a_classifier_of_a_store_alone_cannot_be_changed(model, changed):
    alone = made(model, ("no", "yes"), ("bad", "good")).use_store(changed.store_, (), list(changed.anchors_.values()))
    with pytest.raises(kp.UserError, match="states of the anchors are missing"):
        alone.relabel([0], ["yes"])


def test_what_was_chosen_is_told_as_earlier(model, tmp_path):
    """No estimate by anchors that have changed since is shown as if it were new."""
    texts, labels = [f"{text} {number}" for number in range(2) for text in TEXTS], LABELS * 2
    task = kp.Task("mood", ("text",), "{text}\nIt is", ("no", "yes"), ("bad", "good"))
    chosen = kp.AutoClassifier(model, task, distance="kl", demo_shots=0).fit(texts, labels)
    assert "expect" in chosen.choice_.line and "expect" in str(chosen.choice_)
    rule = chosen.rule_
    chosen.relabel([7], ["yes"]).save(tmp_path / "saved")
    for each in (chosen, kp.load(tmp_path / "saved", model)):
        assert (
            str(each.choice_)
            == f"chosen before the anchors changed: {rule.words}; to choose again: `knnprompt tune --store=FOLDER --apply`"
        )
    assert "expect" in chosen.use(chosen.tune().choice).choice_.line
