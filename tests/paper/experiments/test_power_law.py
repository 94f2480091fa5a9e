"""The fit of ε(m) = α m^β."""

import numpy as np
import pytest

from knnprompt_jax.paper.experiments import data_scaling


def test_the_fit_is_least_squares_in_logarithms_with_its_standard_errors():
    m, error = np.array([32, 64, 128, 256, 1024]), np.array([0.41, 0.33, 0.35, 0.24, 0.2])
    found = data_scaling.fit_power_law(dict(zip(m.tolist(), (100 * (1 - error)).tolist(), strict=True)))
    design = np.stack([np.ones(5), np.log(m)], axis=1)
    coefficients, residuals, *_ = np.linalg.lstsq(design, np.log(error))
    covariance = residuals[0] / 3 * np.linalg.inv(design.T @ design)
    assert (np.log(found.alpha.mean), found.beta.mean) == pytest.approx(tuple(coefficients))
    assert found.beta.std == pytest.approx(np.sqrt(covariance[1, 1]))
    assert found.alpha.std / found.alpha.mean == pytest.approx(np.sqrt(covariance[0, 0]))
    assert found.error(m) == pytest.approx(100 * np.exp(design @ coefficients))


@pytest.mark.parametrize("accuracies", [{}, {32: 60.0, 64: 70.0}, {32: 60.0, 64: 100.0, 128: 100.0}])
def test_two_points_with_an_error_give_no_law(accuracies):
    assert data_scaling.fit_power_law(accuracies) is None
