"""Promised error rates: the bound against plain computations, and whether promises are kept."""

import itertools

import numpy as np
import pytest
from scipy import stats

from knnprompt_jax.classifier.confidence import selective
from knnprompt_jax.common import errors


@pytest.mark.parametrize("rows", [(3, 5, 11), range(1, 12), (7,)])
def test_tosses_that_keep_no_promise_pass_once_in_ten_times_at_most(rows):
    """Every sequence of eleven tosses is tried."""
    rows_T = np.array(rows)
    limits_T = selective.allowed_errors(rows_T, 0.3)
    assert limits_T.max() >= 0
    looser_T = np.maximum(limits_T, np.minimum.accumulate(limits_T[::-1])[::-1] + (rows_T == rows_T[-1]))
    risks = []
    for allowed_T in (limits_T, looser_T):
        risk = 0.0
        for tosses in itertools.product((0, 1), repeat=11):
            wrong_T = np.cumsum(tosses)[rows_T - 1]
            risk += 0.3 ** sum(tosses) * 0.7 ** (11 - sum(tosses)) * bool((wrong_T <= allowed_T).any())
        risks.append(risk)
    assert 0.01 < risks[0] <= 0.1 < risks[1]


@pytest.mark.parametrize("max_error", [0.05, 0.1, 0.37])
def test_a_single_test_is_the_bound_of_clopper_and_pearson(max_error):
    for count in (13, 44, 45, 97, 211):
        bounds = stats.beta.ppf(0.9, np.arange(count) + 1, count - np.arange(count))  # By the number of errors.
        expected = int(np.sum(bounds <= max_error)) - 1
        assert selective.allowed_errors(np.array([count]), max_error).tolist() == [expected]


def draw(rng, count):
    """Return the probabilities of predictions, and whether each is right, of a calibrated classifier."""
    p_N = 1 / (1 + np.exp(-np.abs(rng.normal(3, 2.5, count))))
    return p_N, rng.random(count) < p_N


@pytest.mark.parametrize(("max_error", "count", "least_answered"), [(0.05, 64, 0.1), (0.05, 151, 0.3), (0.1, 97, 0.5)])
def test_promises_are_kept_for_nine_of_ten_draws_and_answer(max_error, count, least_answered):
    rng = np.random.default_rng(0)
    p_M = np.sort(1 / (1 + np.exp(-np.abs(rng.normal(3, 2.5, 200_000)))))
    error_M = np.cumsum(1 - p_M[::-1])[::-1] / np.arange(len(p_M), 0, -1)  # If all above are answered.
    kept, answered = [], []
    for _ in range(100):
        threshold = selective.threshold(*draw(rng, count), max_error)
        first = len(p_M) if threshold is None else np.searchsorted(p_M, threshold)
        kept.append(first == len(p_M) or error_M[first] <= max_error)
        answered.append(1 - first / len(p_M))
    assert np.mean(kept) > 0.9 and np.mean(answered) > least_answered


def test_rows_of_equal_probability_are_answered_together():
    p_N = np.repeat([0.6, 0.9, 0.8], 60)
    right_N = np.ones(180, bool)
    right_N[:7] = False  # Of probability 0.6.
    assert selective.threshold(p_N, right_N, 0.05) == 0.8
    assert selective.threshold(p_N, right_N, 0.1) == 0.6
    right_N[60:100] = False  # Of probability 0.9.
    assert selective.threshold(p_N, right_N, 0.05) is None


def test_no_answer_is_less_probable_than_the_threshold_shown():
    assert [selective.rounded(p) for p in (0.99997, 2 / 3, 1.0)] == ["0.9999", "0.6666", "1.0000"]


def test_a_promise_that_cannot_be_kept_is_refused():
    p_N = np.linspace(0.5, 1, 60)
    right_N = p_N > 0.6
    with pytest.raises(errors.UserError, match="max_error=0.03: .* 60 held-out rows, 12 of them wrong"):
        selective.certify(p_N, right_N, 0.03)
    assert selective.certify(p_N, right_N, 0.05) > 0.6
