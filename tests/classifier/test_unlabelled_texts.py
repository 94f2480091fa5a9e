"""Texts without labels: they centre experts, give the shares of classes, and are saved with a classifier."""

import pickle

import numpy as np
import pytest

import knnprompt_jax as kp
from knnprompt_jax.classifier.experts import expert, linear, pool


@pytest.fixture(scope="module")
def with_texts(model, task, rows):
    classifier = kp.AutoClassifier(model, task, experts=("labels", "probe"), demo_shots=[1, 0])
    return classifier.fit(rows[0][:30], rows[1][:30], unlabelled=rows[0][30:67])


def test_experts_are_centred_by_the_texts(with_texts):
    fitted = with_texts.fitted_
    readings, texts, y_N = fitted.readings, fitted.unlabelled, fitted.content.y_N
    assert len(texts.states[0]) == 37 and texts.states.keys() == readings.states.keys()
    resources = fitted.resources
    words = expert.LabelWords(resources, 0)
    log_p_NC = words._log_p(readings)
    log_p_UC = words._log_p(texts)
    balanced_C = np.mean([log_p_NC[y_N == label].mean(0) for label in np.unique(y_N)], 0)
    expected_C = balanced_C + 37 / 67 * (log_p_UC.mean(0) - log_p_NC.mean(0))
    np.testing.assert_allclose(words.fit(readings, y_N, 6, 0)(readings), log_p_NC - expected_C)
    probe = expert.Probe(resources, 0)
    both_NF = np.concatenate([probe._inputs(readings), probe._inputs(texts)])
    mean_F, scale_F = linear.standardise(both_NF)
    found_NF = probe._standardised(readings)(readings)
    np.testing.assert_allclose(found_NF, (probe._inputs(readings) - mean_F) / scale_F)


def test_they_are_saved_and_copied_with_the_classifier(with_texts, model, rows, tmp_path):
    expected_QC = with_texts.predict_proba(rows[0][67:])
    with_texts.save(tmp_path / "saved")
    for copy in (kp.load(tmp_path / "saved", model), pickle.loads(pickle.dumps(with_texts))):
        assert copy.fitted_.content == with_texts.fitted_.content
        np.testing.assert_allclose(copy.predict_proba(rows[0][67:]), expected_QC, atol=1e-6)


def test_they_give_the_shares_of_classes(with_texts, model, task, rows):
    p_QC = with_texts.predict_proba(rows[0][67:])
    with_texts.set_params(class_prior="estimate")
    shares_C = np.array(with_texts.fitted_.content.estimated_prior)
    odds_QC = p_QC * shares_C / np.bincount(rows[1][:30])
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
