"""Texts without labels: they centre experts, give the shares of classes, and are saved with a classifier."""

import pickle

import numpy as np
import pytest

import knnprompt_jax as kp
from knnprompt_jax.classifier import arguments
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
    with_texts.set_params(class_prior=None)
    with pytest.raises(kp.UserError, match="estimate"):
        kp.AutoClassifier(model, task, class_prior="estimate").fit(rows[0][:30], rows[1][:30])


def test_shares_are_those_of_the_texts():
    """Texts of two normal distributions, of which the second has 4 of 5; the last class has no rows."""
    rng = np.random.default_rng(0)
    x_U = rng.normal(size=1009) + 1.5 * (np.arange(1009) % 5 > 0)
    odds_UC = np.exp(-0.5 * (x_U[:, None] - [0, 1.5, 0]) ** 2) * [0.5, 0.5, 0]
    shares_C = pool.estimate_shares(odds_UC / odds_UC.sum(-1, keepdims=True), np.array([0.5, 0.5, 0]))
    np.testing.assert_allclose(shares_C, [0.2, 0.8, 0], atol=0.04)
    of_one_class_UC = np.tile([1.0, 1e-9, 0.0], (12, 1))
    np.testing.assert_allclose(pool.estimate_shares(of_one_class_UC, np.array([0.5, 0.5, 0])), [13 / 14, 1 / 14, 0])


def test_shares_that_differ_from_those_of_the_rows_are_found(model, task, rows):
    """Rows of equal shares, and texts most of which are of one class, fitted and asked as a user would."""
    by_class = [[text for text, label in zip(*rows, strict=True) if label == each] for each in (4, 5)]
    X = [*by_class[0][:8], *by_class[1][:8]]
    texts = [*by_class[0][8:], *by_class[1][8:10]]
    classifier = kp.AutoClassifier(model, demo_shots=0, class_prior="estimate")
    classifier.fit(X, ["a"] * 8 + ["b"] * 8, unlabelled=texts)
    share = classifier.fitted_.content.estimated_prior[0]
    assert share > 0.65 and (len(texts) - 2) / len(texts) > 0.65
    without = kp.AutoClassifier(model, demo_shots=0, class_prior=[share, 1 - share]).fit(X, ["a"] * 8 + ["b"] * 8)
    np.testing.assert_allclose(classifier.predict_proba(texts), without.predict_proba(texts), atol=1e-6)


@pytest.mark.parametrize("options", [{"class_prior": "uniform"}, {}])
def test_texts_that_have_no_effect_or_are_empty_are_refused(model, options):
    with pytest.raises(kp.UserError, match="have no effect" if options else "^unlabelled: row 0: no text"):
        kp.AutoClassifier(model, **options).fit(["a", "b"], ["x", "y"], unlabelled=[" "])
