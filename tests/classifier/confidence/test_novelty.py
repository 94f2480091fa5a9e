"""Scores of rows that are left out equal those of a fit without the row, and p-values of similar texts are uniform."""

import numpy as np
import pytest

from knnprompt_jax.classifier.confidence import novelty
from knnprompt_jax.classifier.confidence.novelty import Novelty
from knnprompt_jax.classifier.experts import linear

SHARE = novelty._GLOBAL_SHARE
SHRINKAGE = novelty._SHRINKAGE


def drawn(count: int, seed: int, width: int = 13, num_classes: int = 3, shift: float = 0.0) -> tuple:
    """Two arrays of rows around class means, of which the second has correlated columns, and the classes."""
    means_CF = 3 * np.random.default_rng(7).normal(size=(num_classes, width))
    random = np.random.default_rng(seed)
    y_N = random.integers(num_classes, size=count)
    x_NF = means_CF[y_N] + random.normal(size=(count, width)) + shift
    mixed_NF = x_NF @ np.random.default_rng(8).normal(size=(width, width + 4))
    return (x_NF.astype(np.float32), mixed_NF.astype(np.float32)), y_N


def distance(x_F: np.ndarray, mean_F: np.ndarray, scatter_FF: np.ndarray, variance: float, count: int) -> float:
    """The squared Mahalanobis distance by the definition."""
    covariance_FF = (1 - SHRINKAGE) / count * scatter_FF + SHRINKAGE * variance * np.eye(len(x_F))
    return float((x_F - mean_F) @ np.linalg.inv(covariance_FF) @ (x_F - mean_F))


def scatter(x_NF: np.ndarray, y_N: np.ndarray) -> np.ndarray:
    means_CF = {label: x_NF[y_N == label].mean(0) for label in np.unique(y_N)}
    residuals_NF = x_NF - np.stack([means_CF[label] for label in y_N])
    return residuals_NF.T @ residuals_NF


def defined(arrays: tuple, y_N: np.ndarray, texts: tuple, left_out: int | None = None) -> float:
    """The score of one text by the definition, perhaps without one of the rows, at the variances of all rows."""
    count = len(y_N)
    kept_N = np.arange(count) != left_out
    to_classes, to_all = {label: 0.0 for label in np.unique(y_N[kept_N])}, 0.0
    for x_NF, x_F in zip(arrays, texts, strict=True):
        mean_F, scale_F = linear.standardise(x_NF)
        z_NF, z_F = (x_NF - mean_F) / scale_F, (x_F - mean_F) / scale_F
        kept_NF, kept_y_N = z_NF[kept_N], y_N[kept_N]
        variances = [np.trace(scatter(z_NF, labels_N)) / count / z_NF.shape[1] for labels_N in (y_N, 0 * y_N)]
        for label in to_classes:
            mean_z_F = kept_NF[kept_y_N == label].mean(0)
            to_classes[label] += distance(z_F, mean_z_F, scatter(kept_NF, kept_y_N), variances[0], count)
        to_all += distance(z_F, kept_NF.mean(0), scatter(kept_NF, 0 * kept_y_N), variances[1], count)
    return min(to_classes.values()) - SHARE * to_all


@pytest.mark.parametrize(("count", "width"), [(41, 13), (11, 13)])
def test_scores_are_those_of_the_definition_with_and_without_a_row(count, width, monkeypatch):
    monkeypatch.setattr(novelty, "_CHUNK", 7)
    arrays, y_N = drawn(count, 1, width)
    arrays[0][2] += 5  # An outlier.
    y_N[3] = 3  # A class with a single row.
    fitted = Novelty.fit(arrays, y_N)
    texts, _ = drawn(5, 2, width)
    expected = [defined(arrays, y_N, tuple(x_QF[row] for x_QF in texts)) for row in range(5)]
    np.testing.assert_allclose(fitted.scores(texts), expected, rtol=1e-6)
    own = [defined(arrays, y_N, tuple(x_NF[row] for x_NF in arrays), row) for row in range(count)]
    np.testing.assert_allclose(fitted.held_out_N, np.sort(own), rtol=1e-6)


@pytest.mark.parametrize(("count", "width"), [(211, 13), (61, 47)])
def test_p_values_of_texts_like_the_rows_are_uniform(count, width):
    p_values = []
    for seed in range(40):
        arrays, y_N = drawn(count, 2 * seed, width)
        fitted = Novelty.fit(arrays, y_N)
        p_values.append(fitted.p_values(fitted.scores(drawn(83, 2 * seed + 1, width)[0])))
    p_Q = np.concatenate(p_values)
    for share in (0.02, 0.05, 0.1, 0.5):
        possible = np.floor(share * (count + 1)) / (count + 1)
        error = np.sqrt(share * (1 - share) * (1 / len(p_Q) + 1 / (40 * count)))
        assert np.mean(p_Q <= share) == pytest.approx(possible, abs=3 * error), share


def test_doubts_about_rows_are_compared_with_doubts_about_texts():
    p_values = []
    for seed in range(40):
        arrays, y_N = drawn(211, 2 * seed)
        texts, _ = drawn(83, 2 * seed + 1)
        random = np.random.default_rng(seed)
        rows_n = random.permutation(211)[:101]
        fitted = Novelty.fit(arrays, y_N, (rows_n, random.beta(5, 1, size=101)))
        p_Q = random.beta(5, 1, size=83)
        p_values.append(fitted.p_values(fitted.scores(texts, p_Q)))
        assert (fitted.scores(texts, p_Q / 2) > fitted.scores(texts, p_Q)).all()
        assert len(fitted.held_out_N) == 101
    for share in (0.05, 0.5):
        assert np.mean(np.concatenate(p_values) <= share) == pytest.approx(share, rel=0.2)


def test_other_texts_get_the_smallest_p_value():
    arrays, y_N = drawn(97, 3)
    fitted = Novelty.fit(arrays, y_N)
    for others in (drawn(5, 4, shift=30.0)[0], drawn(5, 4, shift=-1e6)[0]):
        assert (fitted.p_values(fitted.scores(others)) == 1 / 98).all()
    means, _ = drawn(97, 5)
    assert fitted.p_values(fitted.scores(tuple(x_NF[:0] for x_NF in means))).shape == (0,)


def test_the_p_value_counts_rows_with_at_least_the_score():
    p_Q = Novelty((), np.array([1.0, 2.0, 2.0, 5.0])).p_values(np.array([0.0, 1.0, 2.0, 3.0, 5.0, 6.0]))
    np.testing.assert_allclose(p_Q, [1, 1, 0.8, 0.4, 0.4, 0.2])


@pytest.mark.parametrize(
    ("x_NF", "y_N"),
    [
        ([[1.0, 2.0]], [0]),
        ([[1.0, 2.0]] * 3, [0, 0, 0]),
        ([[1.0, 2.0]] * 3, [0, 4, 2]),
        ([[1.0, 2.0], [3.0, 2.0]], [1, 0]),
        ([[1.0, 2.0], [3.0, 2.0], [2.0, 1e30]], [5, 5, 5]),
    ],
    ids=["one row", "equal rows", "equal rows of several classes", "one row per class", "one class, a huge number"],
)
def test_few_or_degenerate_rows_give_p_values(x_NF, y_N):
    array_NF = np.array(x_NF, np.float32)
    fitted = Novelty.fit([array_NF], np.array(y_N))
    texts_QF = np.array([[1.0, 2.0], [-7.0, 11.0], [1e30, 0.0]], np.float32)
    p_Q = fitted.p_values(fitted.scores([texts_QF]))
    assert np.isfinite(p_Q).all() and (p_Q > 0).all() and (p_Q <= 1).all()
    assert not np.isnan(fitted.held_out_N).any()
