"""A pool of experts as a classifier: its experts and views, its probabilities, and what survives saving and changes."""

import operator

import numpy as np
import pandas as pd
import pytest

import knnprompt_jax as kp
from knnprompt_jax.classifier import arguments, estimator
from knnprompt_jax.classifier.experts import views, words
from knnprompt_jax.inference import states as states_lib


@pytest.fixture(scope="module")
def saved(model, task, rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("pool") / "saved"
    kp.AutoClassifier(model, task).fit(rows[0][:67], rows[1][:67]).save(path)
    return path


@pytest.fixture
def pool(saved, model):
    return kp.load(saved, model)


def test_every_row_is_read_without_and_after_demonstrations(pool):
    shots, zero = pool.choice_.views
    assert zero == 0 < shots and [view.demo_shots for view in pool.fitted_.content.views] == [shots, 0]
    assert len(pool.anchors_) == 67 and {row.row for row in pool.demonstrations_} <= set(pool.anchors_)
    found = {(member.expert, member.demo_shots, bool(member.token_block)) for member in pool.choice_.members}
    last_tokens = {("labels", 0, False), *((name, shots, False) for name in ("labels", "means", "knn", "probe"))}
    assert found == last_tokens | {("means", 0, True), ("probe", 0, True), ("words", None, False)}
    assert sum(member.share for member in pool.choice_.members) == pytest.approx(1)


def test_labels_are_those_of_the_highest_probability_or_missing(pool, rows):
    predictions = pool.answer(rows[0][67:])
    np.testing.assert_array_equal(predictions.labels, pool.classes_[predictions.probabilities.argmax(-1)])
    np.testing.assert_allclose(predictions.probabilities.sum(-1), 1)
    sure_Q = predictions.probabilities.max(-1) >= 0.6
    labels = pool.predict(rows[0][67:], abstain=0.6)
    assert 0 < sure_Q.sum() < len(sure_Q)
    assert [label is None for label in labels] == (~sure_Q).tolist()
    assert labels[sure_Q].tolist() == predictions.labels[sure_Q].tolist()
    assert pool.predict_proba([]).shape == (0, 6) and pool.predict([]).shape == (0,)
    with pytest.raises(kp.UserError, match="abstain=1.5: "):
        pool.predict(rows[0][67:], abstain=1.5)


def test_novelty_tells_other_texts_apart_and_survives_saving(pool, rows, saved, model):
    fitted = pool.fitted_
    readings = fitted.read(arguments.queries(fitted.task, [*rows[0][67:], *(["0 1 2 3 ; ; ; {}"] * 2)]))
    p_Q = fitted.novelty(readings)
    assert (p_Q[-2:] == 1 / 68).all() and np.mean(p_Q[:-2] <= 0.1) < 0.3 and np.median(p_Q[:-2]) > 0.2
    np.testing.assert_array_equal(kp.load(saved, model).fitted_.novelty(readings), p_Q)
    assert fitted.with_options(fitted.content.options) is fitted, "another object would fit the novelty again"
    published = kp.KNNPrompting(model, fitted.task).fit(rows[0][:67], rows[1][:67]).fitted_
    assert published.novelty(published.read(arguments.queries(fitted.task, ["0 1 2 3 ; ; ; {}"]))) < 0.2


def test_with_many_classes_texts_with_doubtful_predictions_are_more_novel(pool, rows, saved, model, monkeypatch):
    fitted = pool.fitted_
    readings = fitted.read(arguments.queries(fitted.task, rows[0][67:]))
    by_distance_Q = fitted.novelty_scores(readings)
    assert fitted.content.predicted is None
    monkeypatch.setattr(views, "MANY_CLASSES", fitted.task.num_classes)
    again = kp.load(saved, model)
    many = again.fitted_
    p_Q = many.answer(readings).probabilities.max(-1)
    added_Q = many.novelty_scores(readings) - by_distance_Q
    np.testing.assert_allclose(added_Q, many.scope.doubt_weight * np.log((1 - p_Q) / p_Q))
    assert many.scope.doubt_weight > 0 and len(many.scope.held_out_N) == many.content.num_novelty_rows == 67


def test_a_promised_error_rate_leaves_out_the_least_probable_labels(pool, rows):
    """Here about 20 of 67 held-out rows are wrong."""
    with pytest.raises(kp.UserError, match=r"max_error=0.1: cannot be promised from 67 held-out rows, \d+ of them"):
        pool.predict(rows[0][67:], max_error=0.1)
    labels = pool.predict(rows[0][67:], max_error=0.2)
    p_Q = pool.predict_proba(rows[0][67:]).max(-1)
    is_answered_Q = np.array([label is not None for label in labels])
    assert 0 < is_answered_Q.sum() < len(labels) and p_Q[~is_answered_Q].max() < p_Q[is_answered_Q].min()
    assert np.mean(labels[is_answered_Q] != np.array(rows[1][67:])[is_answered_Q]) <= 0.2
    more = pool.predict(rows[0][67:], max_error=0.4)
    assert sum(label is None for label in more) < np.sum(~is_answered_Q)


def test_a_promise_is_refused_where_held_out_rows_are_missing_or_others(pool, model, task, rows):
    few = kp.AutoClassifier(model, task, experts=("words", "knn"), demo_shots=0).fit(rows[0][:24], rows[1][:24])
    with pytest.raises(kp.UserError, match="can be promised: 24 texts, near copies once, are too few: fit 50"):
        few.predict(["x"], max_error=0.5)
    with pytest.raises(kp.UserError, match="no error rate can be promised: class_prior is given"):
        pool.set_params(class_prior="uniform").predict(["x"], max_error=0.5)


def test_near_copies_count_once_for_each_of_their_labels(model, task, rows):
    texts, labels = rows[0][:30], rows[1][:30]
    others = labels[1:] + labels[:1]
    pool = kp.AutoClassifier(model, task, experts="means", demo_shots=0).fit(texts * 3, labels * 2 + others)
    expected = 30 + sum(map(operator.ne, labels, others))
    assert len(pool.choice_.held_out_p) == len(pool.fitted_.content.first_U) == expected > 30


@pytest.mark.parametrize(
    ("experts", "demo_shots", "expected"),
    [
        (("probe", "labels"), (1, 0), [("labels", 1), ("labels", 0), ("probe", 1), ("probe", 0)]),
        (("means", "words"), 2, [("means", 2), ("means", 2), ("words", None)]),
    ],
)
def test_given_experts_are_used_and_saved(model, task, rows, tmp_path, monkeypatch, experts, demo_shots, expected):
    """A saved classifier does not count the terms of its rows again."""
    classifier = kp.AutoClassifier(model, task, experts=experts, demo_shots=demo_shots)
    classifier.fit(rows[0][:67], rows[1][:67]).save(tmp_path / "saved")
    assert [(member.expert, member.demo_shots) for member in classifier.choice_.members] == expected
    assert bool(classifier.fitted_.content.views[0].activations) == bool({"means", "probe"} & set(experts))
    expected_QC = classifier.predict_proba(rows[0][67:])
    with monkeypatch.context() as patch:
        patch.setattr(words.Vocabulary, "of", None)
        loaded = kp.load(tmp_path / "saved", model)
        np.testing.assert_allclose(loaded.predict_proba(rows[0][67:]), expected_QC, atol=1e-6)
    np.testing.assert_allclose(loaded.left_out()[1], classifier.left_out()[1], atol=1e-6)


def test_a_class_without_rows_is_never_predicted(model, task, rows):
    kept = [index for index, label in enumerate(rows[1][:67]) if label != 2]
    texts = [rows[0][index] for index in kept]
    labels = [rows[1][index] for index in kept]
    classifier = kp.AutoClassifier(model, task, demo_shots=1).fit(texts, labels)
    p_QC = classifier.predict_proba(rows[0][67:])
    assert (p_QC[:, 2] == 0).all() and np.isfinite(p_QC).all()


def test_another_prior_makes_its_classes_likelier_also_after_saving(pool, rows, model, tmp_path):
    plain_QC = pool.predict_proba(rows[0][67:])
    prior_C = np.array([6, 1, 1, 1, 1, 1]) / 11
    shifted_QC = pool.set_params(class_prior=prior_C).predict_proba(rows[0][67:])
    pool.save(tmp_path / "saved")
    np.testing.assert_allclose(kp.load(tmp_path / "saved", model).predict_proba(rows[0][67:]), shifted_QC, atol=1e-6)
    series = pd.Series(prior_C).sort_values()
    np.testing.assert_array_equal(pool.set_params(class_prior=series).predict_proba(rows[0][67:]), shifted_QC)
    expected_QC = plain_QC * prior_C / (np.bincount(rows[1][:67], minlength=6) / 67)
    np.testing.assert_allclose(shifted_QC, expected_QC / expected_QC.sum(-1, keepdims=True), rtol=1e-6)
    assert (shifted_QC[:, 0] > plain_QC[:, 0]).all()


def test_classes_that_share_a_token_leave_out_the_expert_on_label_words(model, rows, tmp_path):
    task = kp.Task("w", ("text",), "{text}:", ("0", "1"), ("the same", "not the same"))  # They end in one token.
    classifier = kp.AutoClassifier(model, task, demo_shots=0).fit(rows[0][:20], ["0", "1"] * 10)
    assert "labels" not in {member.expert for member in classifier.choice_.members}
    assert "labels left out: the label words 'the same' and" in str(classifier.choice_)
    with pytest.raises(kp.UserError, match="no expert can score these rows: labels left out"):
        kp.AutoClassifier(model, task, experts=("labels",), demo_shots=0).fit(rows[0][:20], ["0", "1"] * 10)


def test_a_sample_of_the_rows_is_compared_and_all_rows_classify(model, task, rows, monkeypatch):
    classifier = kp.AutoClassifier(model, task, experts=("probe",), demo_shots=0).fit(rows[0][:67], rows[1][:67])
    states = classifier.fitted_.states
    monkeypatch.setattr(estimator, "_CACHE", states_lib.MemoryCache(2**28))
    before = model.statistics.prompts
    monkeypatch.setattr("knnprompt_jax.classifier.experts.views.MAX_COMPARED_ROWS", 40)
    classifier.fit(rows[0][:67], rows[1][:67])
    assert classifier.choice_.num_rows == 40 and model.statistics.prompts == before + 67
    np.testing.assert_allclose(classifier.fitted_.states.hidden_NE, states.hidden_NE, atol=1e-4)
