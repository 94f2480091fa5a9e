"""Votes as scores, and how far scores count."""

import numpy as np
import pytest
from scipy import optimize, special

from knnprompt_jax.rules import rule as rules

SHARES = np.array([0.5, 0.3, 0.2])


def test_a_vote_more_is_cast_by_all_anchors():
    scores_QC = rules.vote_scores(np.array([[0, 0, 2], [1, 1, 1]]), np.array([[0.1, 0.2, 0.3], [1, 2, np.inf]]), SHARES)
    shares_QC = np.exp(scores_QC) * SHARES
    np.testing.assert_allclose(shares_QC[0], [2.5 / 4, 0.3 / 4, 1.2 / 4])
    np.testing.assert_allclose(shares_QC[1], [0.5 / 3, 2.3 / 3, 0.2 / 3])


def test_votes_fade_with_the_distance():
    scores_QC = rules.vote_scores(np.array([[1, 0]]), np.array([[2.0, 2.0 + 3 * np.log(4)]]), SHARES, bandwidth=3.0)
    np.testing.assert_allclose(np.exp(scores_QC[0]) * SHARES, np.array([0.25 + 0.5, 1 + 0.3, 0.2]) / 2.25)


@pytest.fixture
def scored():
    rng = np.random.default_rng(5)
    y_N = rng.choice(3, 211, p=SHARES)
    return [np.eye(3)[y_N] + rng.normal(size=(211, 3)) * noise for noise in (0.7, 2.0)], y_N


def test_counts_are_those_of_the_least_log_loss(scored):
    scores, y_N = scored
    truth_NC = np.tile(SHARES / 213, (211, 1))
    truth_NC[np.arange(211), y_N] += 212 / 213

    def loss(counts):
        log_p = special.log_softmax(np.log(SHARES) + sum(c * s for c, s in zip(counts, scores, strict=True)), -1)
        return -(truth_NC * log_p).sum()

    best = optimize.minimize(loss, [1, 1], method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-9}).x
    np.testing.assert_allclose(rules.fit_counts(scores, y_N, SHARES), best, rtol=1e-4)


def test_scores_that_mislead_do_not_count_and_shares_are_left(scored):
    scores, y_N = scored
    counts = rules.fit_counts([-scores[0]], y_N, SHARES)
    assert counts == (0.0,)
    np.testing.assert_allclose(rules.probabilities([scores[0]], counts, SHARES), np.tile(SHARES, (211, 1)))


def test_a_few_right_rows_do_not_give_probabilities_near_one():
    y_N = np.array([0, 1, 2, 0, 1])
    counts = rules.fit_counts([np.eye(3)[y_N]], y_N, SHARES)
    p_NC = rules.probabilities([np.eye(3)[y_N]], counts, SHARES)
    assert np.isfinite(counts).all() and p_NC.max() < 0.99
