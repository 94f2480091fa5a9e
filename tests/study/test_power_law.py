"""Data scaling: the fit of ε(m) = α m^β, and the averages of tasks."""

import dataclasses

import numpy as np
import pytest

from knnprompt_jax.report import published, results
from knnprompt_jax.study import power_law


def test_the_fit_is_least_squares_in_logarithms_with_its_standard_errors():
    m, error = np.array([32, 64, 128, 256, 1024]), np.array([0.41, 0.33, 0.35, 0.24, 0.2])
    found = power_law.fit_power_law(dict(zip(m.tolist(), (100 * (1 - error)).tolist(), strict=True)))
    design = np.stack([np.ones(5), np.log(m)], axis=1)
    coefficients, residuals, *_ = np.linalg.lstsq(design, np.log(error))
    covariance = residuals[0] / 3 * np.linalg.inv(design.T @ design)
    assert (np.log(found.alpha.mean), found.beta.mean) == pytest.approx(tuple(coefficients))
    assert found.beta.std == pytest.approx(np.sqrt(covariance[1, 1]))
    assert found.alpha.std / found.alpha.mean == pytest.approx(np.sqrt(covariance[0, 0]))
    assert found.error(m) == pytest.approx(100 * np.exp(design @ coefficients))


def test_an_average_is_fitted_where_all_tasks_have_records(make_record):
    made = [
        dataclasses.replace(make_record("data_scaling", task, "knn", m, 1), accuracy=accuracy)
        for task, start in (("mr", 0.6), ("sst2", 0.7))
        for m, accuracy in ((32, start), (128, start + 0.1), (512, start + 0.15), (1024, 0.9))
        if (task, m) != ("sst2", 1024)
    ]
    table = power_law.power_law_table(results.frame(made), published.of("data_scaling")[:0])
    beta = {row.headers[-1]: row.cells[table.columns.index("β")].ours.mean for row in table.rows}
    law = power_law.fit_power_law({32: 65.0, 128: 75.0, 512: 80.0})
    assert beta["average"] == pytest.approx(law.beta.mean)


@pytest.mark.parametrize("accuracies", [{}, {32: 60.0, 64: 70.0}, {32: 60.0, 64: 100.0, 128: 100.0}])
def test_two_points_with_an_error_give_no_law(accuracies):
    assert power_law.fit_power_law(accuracies) is None
