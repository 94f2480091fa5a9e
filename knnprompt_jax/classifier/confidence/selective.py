"""Promised error rates: answer only where the share of wrong answers stays below a given number.

Held-out rows show how often predictions of at least each probability are wrong. Geifman and El-Yaniv, "Selective
classification for deep neural networks" (NeurIPS 2017), choose the threshold on the probability by binomial tests on
such rows; they try about log N thresholds, and share the risk of a wrong decision between them. Here every threshold is
tried, and the risk is computed exactly.

Let a be the promise, and t the threshold above which new predictions are wrong with probability a. Assume that less
probable predictions are not more often right. Then the errors among the k most probable rows, where k passes t, are at
least those of k tosses of a coin that fails with probability a. Some number of errors is allowed at each k, such that
the tosses stay within it at any k with probability 10 % at most. So the promise is kept for at least 90 % of the draws
of rows, if new texts come from the same mixture as the rows.

In names of arrays, N counts held-out rows, from the most probable prediction on, T distinct probabilities, and W wrong
predictions.
"""

import math

import numpy as np

from knnprompt_jax.common import errors

CONFIDENCE = 0.9  # The share of draws of rows for which a promise is kept.
_BISECTIONS = 12


def certify(p_N: np.ndarray, right_N: np.ndarray, max_error: float) -> float:
    """Return the smallest probability from which on predictions keep the promise.

    Args:
        p_N: the probability of the prediction of each held-out row, in any order; at least one.
        right_N: whether the prediction is right.
        max_error: the promise.

    Raises:
        UserError: no threshold can be certified.
    """
    found = threshold(p_N, right_N, max_error)
    if found is not None:
        return found
    raise errors.UserError(
        f"max_error={max_error:g}: cannot be promised from {len(p_N):,} held-out rows, "
        f"{len(p_N) - int(np.sum(right_N)):,} of them wrong: fit more rows, or choose a larger share"
    )


def threshold(p_N: np.ndarray, right_N: np.ndarray, max_error: float) -> float | None:
    """Return the smallest probability from which on predictions keep the promise; None if none can be certified."""
    p_T, rows_T, wrong_T = curve(p_N, right_N)
    certified = np.flatnonzero(wrong_T <= allowed_errors(rows_T, max_error))
    return float(p_T[certified[-1]]) if len(certified) else None


def rounded(threshold: float) -> str:
    """Return a threshold with four decimals, rounded down, so that no answered prediction is less probable."""
    return f"{math.floor(10_000 * threshold) / 10_000:.4f}"


def curve(p_N: np.ndarray, right_N: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the distinct probabilities, the largest first, and the number of rows and of errors from each on [T]."""
    order_N = np.argsort(-p_N, kind="stable")
    p_N = p_N[order_N]
    last_T = np.append(np.flatnonzero(np.diff(p_N)), len(p_N) - 1) if len(p_N) else np.zeros(0, int)
    return p_N[last_T], last_T + 1, np.cumsum(~right_N[order_N].astype(bool))[last_T]


def allowed_errors(rows_T: np.ndarray, max_error: float) -> np.ndarray:
    """Return the number of errors [T] up to which the promise is certified at each number of rows; -1: not at all.

    All tests have the same level: the largest one, up to a factor of 1.002, that keeps the confidence. Failures with
    the probability `max_error` then pass any of the tests with a probability of at most 1 − `CONFIDENCE`.
    """
    risk = 1 - CONFIDENCE
    low = risk / max(1, len(rows_T))
    high = risk
    for _ in range(_BISECTIONS if len(rows_T) > 1 else 0):
        middle = math.sqrt(low * high)
        if _risk(_limits(rows_T, max_error, middle), rows_T, max_error) <= risk:
            low = middle
        else:
            high = middle
    return _limits(rows_T, max_error, low if len(rows_T) > 1 else risk)


def _limits(rows_T: np.ndarray, max_error: float, level: float) -> np.ndarray:
    """Return the largest number of errors [T] whose binomial probability, or fewer errors, is at most the level."""
    from scipy import special  # Its import takes longer than the prediction of a text.

    limits_T = np.full(len(rows_T), -1)
    limit = -1
    for index, count in enumerate(rows_T):
        while special.bdtr(limit + 1, count, max_error) <= level:
            limit += 1
        limits_T[index] = limit
    return limits_T


def _risk(limits_T: np.ndarray, rows_T: np.ndarray, max_error: float) -> float:
    """Return the probability that tosses that fail with probability `max_error` are within the limit at any T."""
    from scipy import special

    tosses_T = np.diff(rows_T, prepend=0)
    failures = {n: np.diff(special.bdtr(np.arange(n + 1), n, max_error), prepend=0.0) for n in set(tosses_T.tolist())}
    most = max(1, limits_T[-1] + 1)  # More failures never pass.
    p_W = np.ones(1)  # Of the number of failures, for tosses that were never within a limit.
    passed = 0.0
    for limit, tosses in zip(limits_T.tolist(), tosses_T.tolist(), strict=True):
        p_W = np.convolve(p_W, failures[tosses])[:most]
        passed += float(p_W[: limit + 1].sum())
        p_W[: limit + 1] = 0
    return passed
