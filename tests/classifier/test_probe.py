"""The probe and its leave-one-out scores, against fitting anew without the row."""

import numpy as np
import pytest

from knnprompt_jax.classifier import rules


@pytest.fixture(params=[(13, 29), (31, 7)], ids=["fewer rows", "more rows"])
def probe_rows(request):
    count, width = request.param
    rng = np.random.default_rng(count)
    hidden_NE = rng.normal(size=(count, width)) * 7 + rng.normal(size=width)
    hidden_NE[:, 2] = 5.0  # A dimension that never changes.
    return rules.ProbeRows(hidden_NE.astype(np.float32), rng.integers(0, 3, count), 3)


def features(rows):
    hidden_NE = rows.hidden_NE.astype(np.float64)
    deviation_E = hidden_NE.std(0)
    return (hidden_NE - hidden_NE.mean(0)) / np.where(deviation_E > 0, deviation_E, 1) / np.sqrt(hidden_NE.shape[1])


def ridge(x_NE, y_NC, penalty):
    """Weights and constants, by augmented least squares."""
    mean_E, mean_C = x_NE.mean(0), y_NC.mean(0)
    tall = np.vstack([x_NE - mean_E, np.sqrt(penalty) * np.eye(x_NE.shape[1])])
    weights_EC = np.linalg.lstsq(tall, np.vstack([y_NC - mean_C, np.zeros((x_NE.shape[1], 3))]), rcond=None)[0]
    return weights_EC, mean_C - mean_E @ weights_EC


@pytest.mark.parametrize("penalty", [0.1, 3.0])
def test_scores_are_those_of_ridge_regression_with_and_without_the_row(probe_rows, penalty):
    x_NE, y_NC = features(probe_rows), np.eye(3)[probe_rows.y_N]
    weights_EC, constant_C = ridge(x_NE, y_NC, penalty)
    expected_NC = x_NE @ weights_EC + constant_C - y_NC.mean(0)
    np.testing.assert_allclose(probe_rows.fit(penalty).scores(probe_rows.hidden_NE), expected_NC, atol=1e-8)
    for row, scores_C in enumerate(probe_rows.left_out(penalty)):
        others = np.arange(len(x_NE)) != row
        weights_EC, constant_C = ridge(x_NE[others], y_NC[others], penalty)
        np.testing.assert_allclose(scores_C, x_NE[row] @ weights_EC + constant_C - y_NC.mean(0), atol=1e-8)
