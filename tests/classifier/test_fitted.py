"""Fitted classifiers: label words, and anchors that are left out."""

import numpy as np
import pytest

import knnprompt_jax as kp

TEXTS = ["red", "green", "blue", "hot", "cold", "up", "down"]
LABELS = ["no", "yes", "no", "yes", "no", "yes", "no"]


def classifier(model, labels=("no", "yes"), words=("bad", "good"), **options):
    task = kp.Task("mood", ("text",), "{text}\nIt is", labels, words)
    published = {"k": 1, "demo_shots": 0}
    return kp.KNNPrompting(model, task, **published | options)


def test_classes_that_share_a_token_are_refused_where_tokens_are_compared(model):
    """The last token of both words is that of " day"."""
    options = {"label_token": "last", "words": ("another day", "good day")}
    with pytest.raises(kp.UserError, match="'another day' and 'good day' end in the same token"):
        classifier(model, distance="kl_labels", **options).fit(TEXTS, LABELS)
    assert classifier(model, distance="kl", **options).fit(TEXTS, LABELS).predict(["red"]) == ["no"]


def test_each_anchor_is_classified_by_the_others(model, rows, task):
    fitted = kp.KNNPrompting(model, task, k=3, demo_shots=0).fit(rows[0][:31], rows[1][:31]).fitted_
    classes_N, shares_NC = fitted.left_out()
    near = fitted.search_among_anchors(3)
    assert (np.asarray(near.indices_Qk) != np.arange(31)[:, None]).all()
    votes_NC = np.array([np.bincount(row, minlength=6) for row in np.asarray(near.classes_Qk)])
    np.testing.assert_allclose(shares_NC, votes_NC / 3, rtol=1e-6)
    np.testing.assert_array_equal(classes_N, votes_NC.argmax(-1))


@pytest.mark.parametrize(("kind", "options"), [(kp.KNNPrompting, {"k": 1}), (kp.AutoClassifier, {})])
def test_leave_one_out_needs_two_texts(model, kind, options):
    with pytest.raises(kp.UserError, match="leave-one-out needs at least two anchors of different texts"):
        kind(model, demo_shots=0).set_params(**options).fit(["a", " A"], ["no", "yes"]).left_out()


@pytest.mark.parametrize("kind", [kp.KNNPrompting, kp.AutoClassifier])
def test_no_row_is_classified_by_its_copy(model, rows, kind):
    """Labels are random, so that only copies could tell them."""
    texts = [*rows[0][:60], *(f" {text}".upper() for text in rows[0][:60])]
    labels = 2 * np.random.default_rng(0).choice(["x", "y"], 60).tolist()
    classifier = kind(model, demo_shots=2).fit(texts, labels)
    p_N, right_N = classifier.fitted_.held_out()
    assert 0.25 < np.mean(right_N) < 0.75
    with pytest.raises(kp.UserError, match="max_error=0.1: cannot be promised"):
        classifier.predict(["a"], max_error=0.1)
