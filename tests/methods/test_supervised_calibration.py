"""Supervised Calibration: a minimum by hand, slopes that reverse a boundary, and other calibrations as special cases."""

import types

import numpy as np
import pytest

from knnprompt_jax.methods import supervised_calibration


class Given(supervised_calibration.SupervisedCalibration):
    """Takes log-probabilities of the label words in the place of states."""

    def label_log_probabilities(self, states):
        return np.asarray(states, np.float64)


def made(penalty, classes=2):
    settings = supervised_calibration.Settings(penalty=penalty)
    return Given(types.SimpleNamespace(), list(range(classes)), settings)


def test_the_minimum_for_one_row():
    """A row of class 0 with p = (½, ½): by the first-order conditions b = (½, −½) and w = 1 − b ln 2, where the penalty is
    2 / (1 + exp(1 + ln² 2))."""
    classifier = made(2 / (1 + np.exp(1 + np.log(2) ** 2))).fit(np.log([[0.5, 0.5]]), [0])
    np.testing.assert_allclose(classifier.shift_C, [0.5, -0.5], atol=1e-6)
    np.testing.assert_allclose(classifier.slope_C, [1 - np.log(2) / 2, 1 + np.log(2) / 2], atol=1e-6)
    score = (1 - np.log(2) / 2) * -np.log(2) + 0.5 - (1 + np.log(2) / 2) * -np.log(2) + 0.5
    np.testing.assert_allclose(
        classifier.predict_proba(np.log([[0.5, 0.5]]))[0, 0], 1 / (1 + np.exp(-score)), atol=1e-6
    )


def test_a_boundary_the_wrong_way_round_is_turned():
    """No shift of a boundary gets more than half of these right; a slope below 0 gets all."""
    p_N = np.array([0.9, 0.8, 0.7, 0.3, 0.2, 0.1])
    logp_NC, y = np.log(np.column_stack([p_N, 1 - p_N])), np.array([1, 1, 1, 0, 0, 0])
    classifier = made(0.01).fit(logp_NC, y)
    np.testing.assert_array_equal(classifier.predict(logp_NC), y)
    assert (classifier.slope_C < 0).all()


def test_a_large_penalty_leaves_in_context_learning():
    logp_NC = np.log([[0.2, 0.5, 0.1], [0.1, 0.1, 0.3]])
    p_NC = made(1e6, 3).fit(logp_NC, [2, 0]).predict_proba(logp_NC)
    np.testing.assert_allclose(p_NC, np.exp(logp_NC) / np.exp(logp_NC).sum(-1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("penalty", [0.1, 3.0])
def test_no_map_nearby_is_better(synthetic, penalty):
    settings = supervised_calibration.Settings(penalty=penalty)
    classifier = supervised_calibration.SupervisedCalibration(synthetic.head, synthetic.label_ids, settings)
    classifier.fit(synthetic.anchors, synthetic.y)
    p_NC = synthetic.p_labels(synthetic.anchors)
    logp_NC = np.log(p_NC / p_NC.sum(-1, keepdims=True))

    def loss(slope_C, shift_C):
        scores_NC = logp_NC * slope_C + shift_C
        right_N = scores_NC[np.arange(len(scores_NC)), synthetic.y] - np.log(np.exp(scores_NC).sum(-1))
        return -right_N.sum() + penalty / 2 * (((slope_C - 1) ** 2).sum() + (shift_C**2).sum())

    best, rng = loss(classifier.slope_C, classifier.shift_C), np.random.default_rng(0)
    for step_2C in 1e-2 * rng.normal(size=(31, 2, 5)):
        assert loss(classifier.slope_C + step_2C[0], classifier.shift_C + step_2C[1]) > best
    accuracy = np.mean(classifier.predict(synthetic.anchors) == synthetic.y)
    assert accuracy >= np.mean(p_NC.argmax(-1) == synthetic.y)
