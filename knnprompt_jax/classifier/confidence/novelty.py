"""Novelty: how unlike the train rows a text is.

The score is the Mahalanobis distance to the nearest class minus almost the distance to the mean of all rows. It is
summed over the arrays that describe a text (its state and an activation). The second term removes what makes a text
unusual for every class alike (Ren et al. 2021, "A simple fix to Mahalanobis distance for improving near-OOD
detection"). Covariances are shrunk towards a multiple of the identity, so there may be fewer rows than dimensions.

Texts near many classes may still belong to none. The score can therefore add the log odds against the predicted class.
These say little with few classes, where a text out of scope often resembles one class far more than the others.

The p-value of a text is (1 + the number of train rows whose own score is at least as large) / (N + 1), as in conformal
tests for outliers (Bates, Candès, Lei, Romano and Sesia 2023, "Testing for outliers with conformal p-values"). A row's
own score is computed without the row, as in the jackknife: the score in the sample would be far too small. If new
texts are exchangeable with the rows, about a share α of them has a p-value of at most α.

Leaving out a row x of class c, which has n rows, changes the class mean by −r / (n − 1), where r = x − mean. It changes
the scatter within classes by −n / (n − 1) · r rᵀ. The Sherman-Morrison formula gives the inverse of the changed
covariance, so no fit is repeated.

    N  train rows    Q  texts    F  numbers that describe a text    C  classes with rows
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from knnprompt_jax.classifier.experts import linear
from knnprompt_jax.common import errors

_SHRINKAGE = 0.5  # Weight of the identity in each covariance.
_GLOBAL_SHARE = 0.95  # Of the distance to the mean of all rows; with 1, a score of two similar classes is mostly noise.
_DOUBT_SCALE = 2.0  # Standard deviation of weighted doubts, relative to that of distances.
_CHUNK = 1024  # Rows that are whitened at a time.
_MIN_VARIANCE = 1e-12
_MIN_PROBABILITY = 1e-9


@dataclasses.dataclass(frozen=True, eq=False)
class Novelty:
    """Novelty scores and p-values, fitted to N rows.

    Attributes:
        parts: the distances in each array.
        held_out_N: the scores of the rows, each without the row itself, in ascending order.
        doubt_weight: the weight of the log odds against the predicted class; 0 if scores are distances only.
    """

    parts: tuple["_Distances", ...]
    held_out_N: np.ndarray
    doubt_weight: float = 0.0

    @classmethod
    def fit(
        cls, arrays: Sequence[np.ndarray], y_N: np.ndarray, predicted: tuple[np.ndarray, np.ndarray] | None = None
    ) -> Self:
        """Fit novelty to arrays [N, F] that describe rows of classes `y_N`.

        Args:
            predicted: the indices [n] of the rows that p-values count, and the probability [n] of the predicted class
                of each without the row; None if scores are distances only.
        """
        _, y_N = np.unique(y_N, return_inverse=True)
        parts = tuple(_Distances.fit(x_NF, y_N) for x_NF in arrays)
        if len(y_N) < 2:
            return cls(parts, np.full(len(y_N), np.inf))
        held_out = [part.held_out(x_NF, y_N) for part, x_NF in zip(parts, arrays, strict=True)]
        scores_N = _score(held_out)
        if predicted is None:
            return cls(parts, np.sort(scores_N))
        rows_n, p_n = predicted
        scores_n = scores_N[rows_n]
        doubts_n = _doubts(p_n)
        weight = _DOUBT_SCALE * float(scores_n.std() / max(doubts_n.std(), _MIN_VARIANCE))
        return cls(parts, np.sort(scores_n + weight * doubts_n), weight)

    def scores(self, arrays: Sequence[np.ndarray], p_Q: np.ndarray | None = None) -> np.ndarray:
        """Return the score [Q] of texts that the arrays [Q, F] describe; the more unlike the rows, the larger.

        Args:
            p_Q: the probability of the predicted class; required if there is a `doubt_weight`.
        """
        scores_Q = _score([part(x_QF) for part, x_QF in zip(self.parts, arrays, strict=True)])
        if not self.doubt_weight:
            return scores_Q
        assert p_Q is not None
        return scores_Q + self.doubt_weight * _doubts(p_Q)

    def p_values(self, scores_Q: np.ndarray) -> np.ndarray:
        """Return the p-value [Q] of texts with these scores; the more unlike the rows, the smaller."""
        num_below_Q = np.searchsorted(self.held_out_N, scores_Q, side="left")
        return (1 + len(self.held_out_N) - num_below_Q) / (1 + len(self.held_out_N))


def check_threshold(reject_novel: float, num_rows: int) -> None:
    """Raise UserError unless some p-value of this number of rows is at most `reject_novel`."""
    if 1 / (num_rows + 1) > reject_novel:
        raise errors.UserError(
            f"reject_novel={reject_novel:g}: the smallest p-value from {num_rows:,} rows is {1 / (num_rows + 1):.2g}; "
            f"fit at least {math.ceil(1 / reject_novel) - 1:,} rows, or give "
            f"--reject_novel={math.ceil(1000 / (num_rows + 1)) / 1000:g}"
        )


def _doubts(p_Q: np.ndarray) -> np.ndarray:
    """Return the log odds against predictions of these probabilities."""
    return np.log(np.maximum(1 - p_Q, _MIN_PROBABILITY)) - np.log(np.maximum(p_Q, _MIN_PROBABILITY))


def _score(distances: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return the score [Q] from the squared distances to classes [Q, C] and to all rows [Q] in each array."""
    to_classes_QC = np.sum([to_classes_QC for to_classes_QC, _ in distances], 0)
    to_all_Q = np.sum([to_all_Q for _, to_all_Q in distances], 0)
    return np.min(to_classes_QC, -1, initial=np.inf) - _GLOBAL_SHARE * to_all_Q


@dataclasses.dataclass(frozen=True, eq=False)
class _Distances:
    """Mahalanobis distances in one array.

    Attributes:
        counts_C: the number of rows of each class.
        mean_F: the mean of the rows.
        within_FF: x @ within_FF has the identity as its shrunk covariance within classes, if x has a mean of 0.
        total_FF: x @ total_FF has the identity as its shrunk covariance, if x has a mean of 0.
        means_CF: the class means relative to `mean_F`, multiplied by `within_FF`.
    """

    counts_C: np.ndarray
    mean_F: np.ndarray
    within_FF: np.ndarray
    total_FF: np.ndarray
    means_CF: np.ndarray

    @classmethod
    def fit(cls, x_NF: np.ndarray, y_N: np.ndarray) -> Self:
        mean_F, scale_F = linear.standardise(x_NF)
        counts_C = np.bincount(y_N)
        sums_CF = np.zeros((len(counts_C), x_NF.shape[1]))
        scatter_FF = np.zeros((x_NF.shape[1], x_NF.shape[1]))
        for rows in _chunks(len(x_NF)):
            scaled_NF = (x_NF[rows] - mean_F) / scale_F
            scatter_FF += scaled_NF.T @ scaled_NF
            sums_CF += np.eye(len(counts_C))[y_N[rows]].T @ scaled_NF
        means_CF = sums_CF / counts_C[:, None]
        within_FF = _whitening(scatter_FF - sums_CF.T @ means_CF, len(x_NF))
        total_FF = _whitening(scatter_FF, len(x_NF))
        scale_F1 = scale_F[:, None]
        return cls(counts_C, mean_F, within_FF / scale_F1, total_FF / scale_F1, means_CF @ within_FF)

    def __call__(self, x_QF: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the squared distance of each text to each class [Q, C] and to the mean of all rows [Q]."""
        to_classes_QC = np.empty((len(x_QF), len(self.counts_C)))
        to_all_Q = np.empty(len(x_QF))
        for rows in _chunks(len(x_QF)):
            centred_QF = x_QF[rows] - self.mean_F
            to_classes_QC[rows] = _squared(centred_QF @ self.within_FF, self.means_CF)
            to_all_Q[rows] = _square_norms(centred_QF @ self.total_FF)
        return to_classes_QC, to_all_Q

    def held_out(self, x_NF: np.ndarray, y_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the distances of at least two rows, each left out: to each class [N, C] and to all other rows [N].

        A class without other rows is infinitely far.
        """
        num_rows = len(y_N)
        to_classes_NC = np.empty((num_rows, len(self.counts_C)))
        to_all_N = np.empty(num_rows)
        for rows in _chunks(num_rows):
            centred_NF = x_NF[rows] - self.mean_F
            to_classes_NC[rows] = self._left_out_of_classes(centred_NF @ self.within_FF, y_N[rows], num_rows)
            norms_N = _square_norms(centred_NF @ self.total_FF)
            factor = num_rows / (num_rows - 1)
            to_all_N[rows] = factor**2 * _downdated(norms_N, norms_N, factor * (1 - _SHRINKAGE) / num_rows * norms_N)
        return to_classes_NC, to_all_N

    def _left_out_of_classes(self, white_NF: np.ndarray, y_N: np.ndarray, num_rows: int) -> np.ndarray:
        """Return the squared distances [N, C] of whitened rows to the classes, without the row itself."""
        counts_N = self.counts_C[y_N]
        residuals_NF = white_NF - self.means_CF[y_N]
        norms_N = _square_norms(residuals_NF)
        factors_N = np.where(counts_N > 1, counts_N / np.maximum(counts_N - 1, 1), 0)
        leverages_N = factors_N * (1 - _SHRINKAGE) / num_rows * norms_N
        products_NC = np.einsum("nf,nf->n", white_NF, residuals_NF)[:, None] - residuals_NF @ self.means_CF.T
        ratios_NC = products_NC**2 / np.maximum(norms_N, _MIN_VARIANCE)[:, None]
        distances_NC = _downdated(_squared(white_NF, self.means_CF), ratios_NC, leverages_N[:, None])
        own_N = factors_N**2 * _downdated(norms_N, norms_N, leverages_N)
        distances_NC[np.arange(len(y_N)), y_N] = np.where(counts_N > 1, own_N, np.inf)
        return distances_NC


def _downdated(distances: np.ndarray, ratios: np.ndarray, leverages: np.ndarray) -> np.ndarray:
    """Return dᵀ (A − α r rᵀ)⁻¹ d.

    Args:
        distances: dᵀ A⁻¹ d.
        ratios: (dᵀ A⁻¹ r)² / rᵀ A⁻¹ r.
        leverages: α rᵀ A⁻¹ r, below 1.
    """
    return distances + ratios * leverages / (1 - leverages)


def _whitening(scatter_FF: np.ndarray, num_rows: int) -> np.ndarray:
    """Return the matrix W [F, F] for which W Wᵀ is the inverse of the shrunk covariance."""
    covariance_FF = scatter_FF / num_rows
    variance = max(np.trace(covariance_FF) / len(covariance_FF), _MIN_VARIANCE)
    shrunk_FF = (1 - _SHRINKAGE) * covariance_FF + _SHRINKAGE * variance * np.eye(len(covariance_FF))
    factor_FF = np.linalg.cholesky(shrunk_FF)  # SciPy's import takes longer than the prediction of a text.
    return np.linalg.inv(factor_FF).T


def _squared(x_QF: np.ndarray, means_CF: np.ndarray) -> np.ndarray:
    """Return the squared distances [Q, C]."""
    products_QC = x_QF @ means_CF.T
    return np.maximum(_square_norms(x_QF)[:, None] + _square_norms(means_CF) - 2 * products_QC, 0)


def _square_norms(x_QF: np.ndarray) -> np.ndarray:
    return np.einsum("qf,qf->q", x_QF, x_QF)


def _chunks(count: int) -> Iterator[slice]:
    return (slice(first, first + _CHUNK) for first in range(0, count, _CHUNK))
