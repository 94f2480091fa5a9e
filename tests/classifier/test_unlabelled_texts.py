"""Texts without labels: they centre experts, give the shares of classes, and are saved with a classifier."""

import pickle

import numpy as np
import pytest

import knnprompt_jax as kp
from knnprompt_jax.classifier import arguments
from knnprompt_jax.classifier.confidence import selective
from knnprompt_jax.classifier.experts import expert, pool, views
from knnprompt_jax.classifier.fitted import resources_of


@pytest.fixture(scope="module")
def with_texts(model, task, rows):
    classifier = kp.AutoClassifier(model, task, experts=("labels", "probe"), demo_shots=[1, 0])
    return classifier.fit(rows[0][:30], rows[1][:30], unlabelled=[*rows[0][30:67], *rows[0][30:35]])


def test_logits_are_relative_to_the_texts_instead_of_the_rows_that_were_held_out(with_texts, task, rows):
    fitted = with_texts.fitted_
    content = fitted.content
    folds_N = views.deal_folds(content.y_N, np.arange(30))
    held_out_NC = np.zeros((30, 6))
    for member in content.choice.used:
        one = expert.KINDS[member.expert](resources_of(content, fitted.model), member.demo_shots, member.token_block)
        scores_NC, _ = one.held_out(fitted.readings, content.y_N, folds_N, 6)
        held_out_NC += member.weight * member.factor * scores_NC
    texts = fitted.read(arguments.queries(task, rows[0][30:67]))
    logits_UC = fitted.pool.logits(texts)
    centred_UC = logits_UC - 37 / 67 * (logits_UC.mean(0) - held_out_NC.mean(0))
    odds_UC = np.bincount(content.y_N) * np.exp(centred_UC)
    np.testing.assert_allclose(fitted.pool.probabilities(texts), odds_UC / odds_UC.sum(-1, keepdims=True), atol=1e-5)


def test_they_are_saved_and_copied_with_the_classifier(with_texts, model, rows, tmp_path):
    expected_QC = with_texts.predict_proba(rows[0][67:])
    with_texts.save(tmp_path / "saved")
    for copy in (kp.load(tmp_path / "saved", model), pickle.loads(pickle.dumps(with_texts))):
        assert copy.fitted_.content == with_texts.fitted_.content
        np.testing.assert_allclose(copy.predict_proba(rows[0][67:]), expected_QC, atol=1e-6)


def test_they_give_the_shares_of_classes(with_texts, model, task, rows):
    odds_QC = with_texts.set_params(class_prior="uniform").predict_proba(rows[0][67:])
    with_texts.set_params(class_prior="estimate")
    odds_QC *= with_texts.fitted_.content.estimated_prior
    np.testing.assert_allclose(with_texts.predict_proba(rows[0][67:]), odds_QC / odds_QC.sum(-1, keepdims=True))
    counts_C = np.bincount(rows[1][:30], minlength=6)
    p_UC = with_texts.set_params(class_prior=counts_C).predict_proba(rows[0][30:67])
    estimated_C = pool.estimate_shares(p_UC, counts_C)
    np.testing.assert_allclose(with_texts.fitted_.content.estimated_prior, estimated_C, rtol=1e-4)
    with_texts.set_params(class_prior=None)
    with pytest.raises(kp.UserError, match="estimate"):
        kp.AutoClassifier(model, task, class_prior="estimate").fit(rows[0][:30], rows[1][:30])


def test_promises_are_about_the_probabilities_relative_to_the_texts(model, task, rows, monkeypatch):
    given, assess = [], pool.assess
    monkeypatch.setattr(pool, "assess", lambda choice, *rest: given.append(rest) or assess(choice, *rest))
    classifier = kp.AutoClassifier(model, task, experts=("labels", "probe"), demo_shots=0)
    content = classifier.fit(rows[0][:60], rows[1][:60], unlabelled=rows[0][60:]).fitted_.content
    logits_NC, y_N, first_U = given[0]
    p_UC = pool.probabilities((logits_NC - content.choice.offset)[first_U], np.bincount(y_N) / 60)
    np.testing.assert_allclose(content.choice.held_out_p, p_UC.max(-1))
    is_sure_Q = classifier.predict_proba(rows[0]).max(-1) >= selective.certify(*content.kept_predictions(), 0.5)
    assert [label is not None for label in classifier.predict(rows[0], max_error=0.5)] == is_sure_Q.tolist()


def test_shares_are_those_of_the_texts():
    """Texts of two normal distributions, of which the second has 4 of 5; the last class has no rows."""
    rng = np.random.default_rng(0)
    x_U = rng.normal(size=1009) + 1.5 * (np.arange(1009) % 5 > 0)
    odds_UC = np.exp(-0.5 * (x_U[:, None] - [0, 1.5, 0]) ** 2) * [0.5, 0.5, 0]
    shares_C = pool.estimate_shares(odds_UC / odds_UC.sum(-1, keepdims=True), np.array([0.5, 0.5, 0]))
    np.testing.assert_allclose(shares_C, [0.2, 0.8, 0], atol=0.04)
    of_one_class_UC = np.tile([1.0, 1e-9, 0.0], (12, 1))
    np.testing.assert_allclose(pool.estimate_shares(of_one_class_UC, np.array([0.5, 0.5, 0])), [13 / 14, 1 / 14, 0])


@pytest.mark.parametrize("options", [{"class_prior": "uniform"}, {}])
def test_texts_that_have_no_effect_or_are_empty_are_refused(model, options):
    with pytest.raises(kp.UserError, match="have no effect" if options else "^unlabelled: row 0: no text"):
        kp.AutoClassifier(model, **options).fit(["a", "b"], ["x", "y"], unlabelled=[" "])
