"""Ridge regression of classes and means of classes, with balanced classes, and scores of rows that are held out.

Scores [Q, C] do not depend on the classes' shares of the rows: each class has the same total weight.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Scorer = Callable[[Any], np.ndarray]
"""A function from inputs [Q, F] to scores [Q, C]."""

_MIN_SCALE = 1e-12
_MIN_RIDGE = 1e-8  # Relative to the variance of all dimensions: above the rounding of a product that lacks rank.
_RANK_TOLERANCE = 1e-10
_MAX_GRAM_ROWS = 4096  # Of sparse rows whose products with each other are kept, 128 MiB.
_SHRINKAGE = 0.5  # Weight of the identity in the covariance that whitens class means.


def class_weights(y_N: np.ndarray) -> np.ndarray:
    """Return weights [N] with which all classes that occur have the same total; their mean is 1."""
    counts_C = np.bincount(y_N)
    return len(y_N) / np.count_nonzero(counts_C) / counts_C[y_N]


def centred_targets(y_N: np.ndarray, num_classes: int) -> np.ndarray:
    """Return 1 − 1/C for each row's class and −1/C for others [N, C]."""
    return np.eye(num_classes)[y_N] - 1 / num_classes


def standardise(x_NF: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the scale [F] of inputs; x scaled by them has a mean square norm of 1."""
    deviation_F = x_NF.std(0, dtype=np.float64)
    scale_F = np.where(deviation_F > _MIN_SCALE, deviation_F, 1.0) * np.sqrt(x_NF.shape[1])
    return x_NF.mean(0, dtype=np.float64), scale_F


def fit_ridge(x_NF: Any, y_N: np.ndarray, num_classes: int, penalty: float) -> Scorer:
    """Fit a ridge regression of the classes; `x_NF` may be sparse and should have a mean square norm of about 1."""
    slope_FC, intercept_C = ridge_coefficients(x_NF, y_N, num_classes, penalty)
    return lambda x_QF: x_QF @ slope_FC + intercept_C


def ridge_coefficients(x_NF: Any, y_N: np.ndarray, num_classes: int, penalty: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the slopes [F, C] and intercepts [C] of `fit_ridge`."""
    weights_N = class_weights(y_N)
    truth_NC = centred_targets(y_N, num_classes)
    is_sparse = not isinstance(x_NF, np.ndarray)
    if is_sparse and len(y_N) > _MAX_GRAM_ROWS:
        from sklearn import linear_model  # Its import takes longer than the prediction of a text.

        ridge = linear_model.Ridge(penalty, solver="sparse_cg").fit(x_NF, truth_NC, sample_weight=weights_N)
        return ridge.coef_.reshape(num_classes, -1).T, np.broadcast_to(ridge.intercept_, num_classes)
    root_N = np.sqrt(weights_N)
    shares_N = weights_N / weights_N.sum()
    mean_F = shares_N @ x_NF
    mean_C = shares_N @ truth_NC
    scaled_NC = root_N[:, None] * (truth_NC - mean_C)
    if is_sparse or len(x_NF) < x_NF.shape[1]:
        gram_NN = _centred_gram(x_NF, root_N)
        dual_NC = root_N[:, None] * np.linalg.solve(gram_NN + penalty * np.eye(len(y_N)), scaled_NC)
        slope_FC = x_NF.T @ dual_NC  # Its columns add up to 0: the mean of x has no effect.
    else:
        scaled_NF = root_N[:, None] * (x_NF - mean_F)
        product_FF = scaled_NF.T @ scaled_NF + penalty * np.eye(x_NF.shape[1])
        slope_FC = np.linalg.solve(product_FF, scaled_NF.T @ scaled_NC)
    return slope_FC, mean_C - mean_F @ slope_FC


def held_out_ridge(
    x_NF: Any, y_N: np.ndarray, folds_N: np.ndarray, num_classes: int, penalties: Sequence[float]
) -> np.ndarray:
    """Return each row's scores [J, N, C] by ridge regressions of all other folds, for each of J penalties.

    Let ω be the rows' weights, and H the hat matrix of the rows scaled by √ω, with the intercept as the column √ω. The
    residuals of a held-out fold B are (I − H_BB)⁻¹ r_B, where r are the residuals of one regression of all rows. So no
    regression is repeated, and the result is exact.
    """
    from scipy import linalg  # Its import takes longer than the prediction of a text.

    root_N = np.sqrt(class_weights(y_N))
    intercept_N = root_N / np.linalg.norm(root_N)
    gram_NN = _centred_gram(x_NF, root_N)
    values_R, vectors_NR = linalg.eigh(gram_NN)
    values_R = values_R.clip(0)
    truth_NC = centred_targets(y_N, num_classes)
    scaled_NC = root_N[:, None] * truth_NC
    scores_JNC = np.empty((len(penalties), *truth_NC.shape))
    for scores_NC, penalty in zip(scores_JNC, penalties, strict=True):
        shrunk_NR = vectors_NR * (values_R / (values_R + penalty))
        fitted_NC = shrunk_NR @ (vectors_NR.T @ scaled_NC) + np.outer(intercept_N, intercept_N @ scaled_NC)
        for fold in np.unique(folds_N):
            members = np.flatnonzero(folds_N == fold)
            hat_BB = shrunk_NR[members] @ vectors_NR[members].T + np.outer(intercept_N[members], intercept_N[members])
            residuals_BC = (scaled_NC - fitted_NC)[members]
            residuals_BC = linalg.lstsq(np.eye(len(members)) - hat_BB, residuals_BC, cond=_RANK_TOLERANCE)[0]
            scores_NC[members] = truth_NC[members] - residuals_BC / root_N[members, None]
    return scores_JNC


def _centred_gram(x_NF: Any, root_N: np.ndarray) -> np.ndarray:
    """Return the products [N, N] of rows that are relative to their mean, weighted by ω, and scaled by √ω."""
    product_NN = x_NF @ x_NF.T
    gram_NN = np.asarray(product_NN if isinstance(x_NF, np.ndarray) else product_NN.todense(), np.float64)
    gram_NN = gram_NN * root_N[:, None] * root_N
    intercept_N = root_N / np.linalg.norm(root_N)
    for _ in range(2):  # Centre both sides.
        gram_NN = (gram_NN - np.outer(intercept_N, intercept_N @ gram_NN)).T
    return gram_NN


def fit_means(x_NF: np.ndarray, y_N: np.ndarray, num_classes: int) -> Scorer:
    """Fit class means; a score is the cosine between an input and a class mean, both relative to the mean of the means.

    The cosine is that of inputs whitened by the covariance within classes, shrunk towards the identity.
    """
    present = np.unique(y_N)
    means_PF = np.stack([x_NF[y_N == label].mean(0) for label in present])
    centre_F = means_PF.mean(0)
    means_CF = np.tile(centre_F, (num_classes, 1))  # An absent class scores 0.
    means_CF[present] = means_PF
    within = _within_classes(x_NF - means_CF[y_N])

    def normalised(x_QF: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        centred_QF = x_QF - centre_F
        within_QR = within(centred_QF)
        squares_Q = (centred_QF**2).sum(-1) - (within_QR**2).sum(-1)
        norms_Q = np.sqrt(squares_Q.clip(_MIN_SCALE**2))
        return centred_QF / norms_Q[:, None], within_QR / norms_Q[:, None]

    def score(x_QF: np.ndarray) -> np.ndarray:
        centred_QF, within_QR = normalised(x_QF)
        return centred_QF @ directions_CF.T - within_QR @ within_CR.T

    directions_CF, within_CR = normalised(means_CF)
    return score


def _within_classes(residuals_NF: np.ndarray) -> Scorer:
    """Return the function z [Q, R] of inputs with which x · y − z(x) · z(y) is proportional to xᵀS⁻¹y.

    S = (1 − s) RᵀR / N + s v 1 is the covariance of the residuals R, shrunk towards a multiple of the identity. With
    λ = s v N / (1 − s), Woodbury's identity is S⁻¹ ∝ 1 − Rᵀ(RRᵀ + λ)⁻¹R. Few rows so need no matrix [F, F].
    """
    count, width = residuals_NF.shape
    variance = max((residuals_NF**2).sum() / width, count * _MIN_SCALE)  # v N.
    if count > width:  # RᵀR is all that counts: keep a triangle with the same.
        product_FF = residuals_NF.T @ residuals_NF
        residuals_NF = np.linalg.cholesky(product_FF + _MIN_RIDGE * variance * np.eye(width)).T
    gram_RR = residuals_NF @ residuals_NF.T
    penalty = _SHRINKAGE / (1 - _SHRINKAGE) * variance
    triangle_RR = np.linalg.cholesky(gram_RR + penalty * np.eye(len(gram_RR)))
    # SciPy's import takes longer than the prediction of a text.
    whitened_RF = np.linalg.solve(triangle_RR, residuals_NF)
    return lambda x_QF: x_QF @ whitened_RF.T
