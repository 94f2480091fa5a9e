"""Fitted classifiers: rows that are added give the classifier of one fit, and an object never changes."""

import numpy as np
import pytest

import knnprompt_jax as kp
from knnprompt_jax.datastore import StoreOptions

TEXTS = ["red", "green", "blue", "hot", "cold", "up", "down"]
LABELS = ["no", "yes", "no", "yes", "no", "yes", "no"]
KINDS = [("factored", "kl"), ("dense", "reverse_kl_labels")]


def classifier(model, labels=("no", "yes"), words=("bad", "good"), **options):
    task = kp.Task("mood", ("text",), "{text}\nIt is", labels, words)
    published = {"k": 1, "demo_shots": 0}
    return kp.KNNPrompting(model, task, **published | options)


@pytest.mark.parametrize(("kind", "distance"), KINDS)
def test_a_new_class_gives_the_classifier_of_one_fit(model, kind, distance, capsys):
    more = ["left", "right", "far"]
    labels = ["so_so", "yes", "other"]
    options = {"store_options": StoreOptions(kind=kind), "distance": distance}
    grown = classifier(model, **options).fit(TEXTS, LABELS)
    earlier = grown.fitted_
    before = model.statistics.prompts
    grown.partial_fit(more, labels)
    assert model.statistics.prompts <= before + 3  # Fewer if these prompts are in the cache.
    assert "new class 'other', whose label word is 'other'\n" in capsys.readouterr().err
    assert len(earlier.content.anchors) == 7 and earlier.task.labels == ("no", "yes"), "the earlier object is unchanged"
    every = ("no", "yes", "other", "so_so")
    whole = classifier(model, every, ("bad", "good", "other", "so so"), **options)
    whole.fit(TEXTS + more, LABELS + labels)
    assert grown.task_ == whole.task_
    texts = [*TEXTS, *more, "near"]
    for mine, other in zip(grown.kneighbors(texts, 3), whole.kneighbors(texts, 3), strict=True):
        np.testing.assert_allclose(mine, other, atol=2e-5)
    np.testing.assert_array_equal(grown.predict(texts), whole.predict(texts))
    np.testing.assert_allclose(grown.predict_proba(texts), whole.predict_proba(texts), atol=1e-5)


def test_classes_that_share_a_token_are_refused_where_tokens_are_compared(model):
    """The last token of both words is that of " day"."""
    options = {"label_token": "last", "labels": ("no", "yes"), "words": ("bad", "good day")}
    by_words = classifier(model, distance="kl_labels", **options).fit(TEXTS, LABELS)
    by_all = classifier(model, distance="kl", **options).fit(TEXTS, LABELS)
    expected = by_words.predict(TEXTS)
    before = model.statistics.prompts
    with pytest.raises(kp.UserError, match="'good day' and 'another day' end in the same token"):
        by_words.partial_fit(["x"], ["another_day"])
    assert model.statistics.prompts == before and by_words.task_.labels == ("no", "yes")
    np.testing.assert_array_equal(by_words.predict(TEXTS), expected)
    assert by_all.partial_fit(["x"], ["another_day"]).predict(["x"]) == ["another_day"]


def test_each_anchor_is_classified_by_the_others(model, rows, task):
    fitted = kp.KNNPrompting(model, task, k=3, demo_shots=0).fit(rows[0][:31], rows[1][:31]).fitted_
    classes_N, shares_NC = fitted.left_out()
    near = fitted.search_among_anchors(3)
    assert (np.asarray(near.indices_Qk) != np.arange(31)[:, None]).all()
    votes_NC = np.array([np.bincount(row, minlength=6) for row in np.asarray(near.classes_Qk)])
    np.testing.assert_allclose(shares_NC, votes_NC / 3, rtol=1e-6)
    np.testing.assert_array_equal(classes_N, votes_NC.argmax(-1))


@pytest.mark.parametrize("kind", [kp.KNNPrompting, kp.AutoClassifier])
def test_leave_one_out_needs_two_texts(model, kind):
    with pytest.raises(kp.UserError, match="leave-one-out needs at least two anchors of different texts"):
        kind(model, demo_shots=0, **{"k": 1} if kind is kp.KNNPrompting else {}).fit(
            ["a", " A"], ["no", "yes"]
        ).left_out()


@pytest.mark.parametrize("kind", [kp.KNNPrompting, kp.AutoClassifier])
def test_no_row_is_classified_by_its_copy(model, rows, kind):
    """Labels are random, so that only copies could tell them."""
    texts = [*rows[0][:40], *(f" {text}".upper() for text in rows[0][:40])]
    labels = 2 * np.random.default_rng(0).choice(["x", "y"], 40).tolist()
    classifier = kind(model, demo_shots=2).fit(texts, labels)
    p_N, right_N = classifier.fitted_.held_out()
    assert 0.25 < np.mean(right_N) < 0.75
    with pytest.raises(kp.UserError, match="max_error=0.1: cannot be promised"):
        classifier.predict(["a"], max_error=0.1)
