"""The probe and its leave-one-out scores, against fitting anew without the row."""

import numpy as np
import pytest

from knnprompt_jax.rules import rule as rules


@pytest.fixture(params=[(13, 29), (31, 7)], ids=["fewer rows", "more rows"])
def probe_rows(request):
    count, width = request.param
    rng = np.random.default_rng(count)
    inputs_NF = rng.normal(size=(count, width)) * 7 + rng.normal(size=width)
    inputs_NF[:, 2] = 5.0  # A dimension that never changes.
    return inputs_NF.astype(np.float32), rng.integers(0, 3, count)


def features(inputs_NF):
    inputs_NF = inputs_NF.astype(np.float64)
    deviation_F = inputs_NF.std(0)
    return (inputs_NF - inputs_NF.mean(0)) / np.where(deviation_F > 0, deviation_F, 1) / np.sqrt(inputs_NF.shape[1])


def ridge(x_NF, y_NC, penalty):
    """Weights and constants, by augmented least squares."""
    mean_F, mean_C = x_NF.mean(0), y_NC.mean(0)
    tall = np.vstack([x_NF - mean_F, np.sqrt(penalty) * np.eye(x_NF.shape[1])])
    weights_FC = np.linalg.lstsq(tall, np.vstack([y_NC - mean_C, np.zeros((x_NF.shape[1], 3))]), rcond=None)[0]
    return weights_FC, mean_C - mean_F @ weights_FC


@pytest.mark.parametrize("penalty", [0.1, 3.0])
def test_scores_are_those_of_ridge_regression_with_and_without_the_row(probe_rows, penalty):
    inputs_NF, y_N = probe_rows
    x_NF, y_NC = features(inputs_NF), np.eye(3)[y_N]
    weights_FC, constant_C = ridge(x_NF, y_NC, penalty)
    expected_NC = x_NF @ weights_FC + constant_C - y_NC.mean(0)
    probe = rules.fit_probe(inputs_NF, y_N, penalty)
    np.testing.assert_allclose(probe.predict(inputs_NF.astype(float)), expected_NC, atol=1e-8)
    for row, scores_C in enumerate(rules.left_out_scores(inputs_NF, y_N, [1.0, penalty])[1]):
        others = np.arange(len(x_NF)) != row
        weights_FC, constant_C = ridge(x_NF[others], y_NC[others], penalty)
        np.testing.assert_allclose(scores_C, x_NF[row] @ weights_FC + constant_C - y_NC.mean(0), atol=1e-8)
