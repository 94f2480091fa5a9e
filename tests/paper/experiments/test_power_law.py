"""The fit of ε(m) = α m^β."""

import numpy as np
import pytest

from knnprompt_jax.paper import experiments
from knnprompt_jax.paper.experiments import data_scaling
from knnprompt_jax.report import results


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


def test_the_papers_law_is_fitted_to_the_same_tasks_and_m(make_record):
    records = [make_record("data_scaling", "trec", "knn", m, 1, cell={"regime": "full"}) for m in (32, 128, 1024)]
    ours = results.frame(records)
    paper = data_scaling.of_knn(experiments.EXPERIMENTS["data_scaling"].paper(ours))
    (row,) = (
        row
        for row in data_scaling.power_law_table(ours, paper[paper.regime == "full"]).rows
        if row.headers[1] == "TREC"
    )
    law = data_scaling.fit_power_law({32: 64.8, 128: 74.0, 1024: 83.0})
    assert row.headers == ("gpt2-xl (1.5B)", "TREC")
    assert row.cells[1].paper == law.beta
