"""Ridge regression and class means: against their definitions, and held-out scores against refits."""

import numpy as np
import pytest
from scipy import sparse
from sklearn import linear_model

from knnprompt_jax.classifier.experts import linear, views

CLASSES = 3


@pytest.fixture(scope="module", params=[(37, 11), (23, 59)], ids=["few inputs", "many inputs"])
def data(request):
    """Rows of three unequal classes with inputs of mean square norm 1."""
    count, width = request.param
    generator = np.random.default_rng(3)
    y_N = generator.choice(CLASSES, count, p=[0.6, 0.25, 0.15])
    x_NF = generator.normal(size=(count, width)) + np.eye(CLASSES, width)[y_N]
    return x_NF / np.sqrt(width), y_N


@pytest.mark.parametrize("penalty", [0.1, 3.0])
@pytest.mark.parametrize("limit", [0, 100])
def test_ridge_is_scikit_learns_with_balanced_weights(data, penalty, limit, monkeypatch):
    """Many sparse rows are fitted by conjugate gradients, up to their tolerance."""
    monkeypatch.setattr(linear, "_MAX_GRAM_ROWS", limit)
    x_NF, y_N = data
    assert np.bincount(y_N, linear.class_weights(y_N)) == pytest.approx(len(y_N) / CLASSES)
    truth_NC = np.eye(CLASSES)[y_N] - 1 / CLASSES
    expected = linear_model.Ridge(penalty).fit(x_NF, truth_NC, sample_weight=linear.class_weights(y_N))
    for inputs, tolerance in ((x_NF, 1e-9), (sparse.csr_matrix(x_NF), 1e-9 if limit else 1e-3)):
        scores_NC = linear.fit_ridge(inputs, y_N, CLASSES, penalty)(inputs)
        np.testing.assert_allclose(scores_NC, expected.predict(x_NF), atol=tolerance)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_held_out_scores_are_those_of_regressions_without_the_fold(data, kind):
    """The weights of all rows are kept."""
    x_NF, y_N = data
    folds_N = views.deal_folds(y_N, np.arange(len(y_N)))
    penalties = (0.3, 3.0)
    found_JNC = linear.held_out_ridge(kind(x_NF), y_N, folds_N, CLASSES, penalties)
    weights_N = linear.class_weights(y_N)
    truth_NC = linear.centred_targets(y_N, CLASSES)
    for found_NC, penalty in zip(found_JNC, penalties, strict=True):
        for fold in np.unique(folds_N):
            rest = folds_N != fold
            ridge = linear_model.Ridge(penalty).fit(x_NF[rest], truth_NC[rest], sample_weight=weights_N[rest])
            np.testing.assert_allclose(found_NC[~rest], ridge.predict(x_NF[~rest]), atol=1e-8)


def test_class_means_are_compared_by_the_cosine_of_whitened_inputs(data):
    x_NF, y_N = data
    means_CF = np.stack([x_NF[y_N == label].mean(0) for label in range(CLASSES)])
    centre_F = means_CF.mean(0)
    residuals_NF = x_NF - means_CF[y_N]
    covariance_FF = residuals_NF.T @ residuals_NF / len(x_NF)
    variance = np.trace(covariance_FF) / len(covariance_FF)
    inverse_FF = np.linalg.inv(0.5 * covariance_FF + 0.5 * variance * np.eye(len(covariance_FF)))
    a_NF = x_NF - centre_F
    b_CF = means_CF - centre_F
    norms_N = np.sqrt(np.einsum("nf,fg,ng->n", a_NF, inverse_FF, a_NF))
    norms_C = np.sqrt(np.einsum("cf,fg,cg->c", b_CF, inverse_FF, b_CF))
    expected_NC = a_NF @ inverse_FF @ b_CF.T / norms_N[:, None] / norms_C
    found_NC = linear.fit_means(x_NF, y_N, CLASSES)(x_NF)
    np.testing.assert_allclose(found_NC, expected_NC, atol=1e-9)


def test_a_class_without_rows_has_no_direction(data):
    x_NF, y_N = data
    scores_NC = linear.fit_means(x_NF, y_N, CLASSES + 1)(x_NF)
    assert (scores_NC[:, CLASSES] == 0).all() and np.abs(scores_NC[:, :CLASSES]).max() <= 1 + 1e-12


def test_constant_inputs_are_no_infinity():
    mean_F, scale_F = linear.standardise(np.full((5, 3), 7.0))
    assert (mean_F == 7).all() and np.isfinite(1 / scale_F).all()
