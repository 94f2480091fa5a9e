"""LinC against stochastic gradient descent written out in NumPy."""

import dataclasses

import numpy as np
import pytest
from scipy import special

from knnprompt_jax.methods import linc

SETTINGS, SEED = linc.Settings(epochs=4, learning_rate=0.3, rows=31), 2


def reference(synthetic, y):
    """Slope [C, C] and shift [C] after one gradient step a row, from contextual calibration's slope."""
    p_NC = synthetic.p_labels(synthetic.anchors)[: SETTINGS.rows]
    p_NC = p_NC / p_NC.sum(-1, keepdims=True)
    bias_C = synthetic.p_labels(synthetic.content_free).mean(0)
    slope_CC, shift_C = np.diag(bias_C.sum() / bias_C), np.zeros(5)
    generator = np.random.default_rng(SEED)
    for _ in range(SETTINGS.epochs):
        for row in generator.permutation(len(p_NC)):
            error_C = special.softmax(slope_CC @ p_NC[row] + shift_C) - np.eye(5)[y[row]]
            slope_CC = slope_CC - SETTINGS.learning_rate * np.outer(error_C, p_NC[row])
            shift_C = shift_C - SETTINGS.learning_rate * error_C
    return slope_CC, shift_C


def fit(synthetic, y, **options):
    classifier = linc.LinearProbeCalibration(
        synthetic.head, synthetic.label_ids, synthetic.content_free, dataclasses.replace(SETTINGS, **options), SEED
    )
    return classifier.fit(synthetic.anchors, y)


@pytest.mark.parametrize("missing", [None, 3])
def test_stochastic_gradient_descent(synthetic, missing):
    """With every class, and with one that has no anchor."""
    y = np.where(synthetic.y == missing, 0, synthetic.y)
    slope_CC, shift_C = reference(synthetic, y)
    classifier = fit(synthetic, y)
    np.testing.assert_allclose(classifier.slope_CC, slope_CC, rtol=1e-3)
    np.testing.assert_allclose(classifier.shift_C, shift_C, atol=1e-3)
    p_QC = synthetic.p_labels(synthetic.queries)
    want_QC = special.softmax(p_QC / p_QC.sum(-1, keepdims=True) @ slope_CC.T + shift_C, axis=-1)
    np.testing.assert_allclose(classifier.predict_proba(synthetic.queries), want_QC, atol=2e-3)
    np.testing.assert_array_equal(classifier.predict(synthetic.queries), want_QC.argmax(-1))


def test_without_steps_it_is_the_slope_of_contextual_calibration(synthetic):
    bias_C = synthetic.p_labels(synthetic.content_free).mean(0)
    classifier = fit(synthetic, synthetic.y, learning_rate=0.0)
    np.testing.assert_allclose(classifier.slope_CC, np.diag(bias_C.sum() / bias_C), rtol=1e-3)


def test_one_class_only(synthetic):
    classifier = linc.LinearProbeCalibration(synthetic.head, [7], synthetic.content_free, SETTINGS)
    classifier.fit(synthetic.anchors, np.zeros(103, int))
    np.testing.assert_array_equal(classifier.predict_proba(synthetic.queries), np.ones((13, 1)))
