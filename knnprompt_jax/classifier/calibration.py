"""Probabilities from scores of classes: how far each kind of score counts, by the log loss of anchors that others classify."""

from collections.abc import Sequence

import numpy as np
from scipy import special

_STEPS, _DAMPING, _LEAST_PRIOR = 12, 1e-6, 1e-300


def probabilities(scores: Sequence[np.ndarray], counts: Sequence[float], shares_C: np.ndarray) -> np.ndarray:
    """softmax(log share + Σ_j count_j · score_j) [Q, C]: the classes' shares of the anchors where no score counts."""
    return special.softmax(_logits(np.stack(scores), np.array(counts), shares_C), -1)


def fit(scores: Sequence[np.ndarray], y_N: np.ndarray, shares_C: np.ndarray) -> tuple[float, ...]:
    """The counts, none below 0, with the least log loss of N anchors by scores [N, C] that others have given them.

    The class of an anchor is taken to be true with the probability (N + 1) / (N + 2), as Platt does, so that scores which are
    right for each of a few anchors make nobody sure.
    """
    score_JNC, count = np.stack(scores), len(y_N)
    truth_NC = np.tile(shares_C / (count + 2), (count, 1))
    truth_NC[np.arange(count), y_N] += (count + 1) / (count + 2)

    counts_J = np.ones(len(score_JNC))
    for _ in range(_STEPS):  # Newton's; the log loss is convex in the counts.
        p_NC = special.softmax(_logits(score_JNC, counts_J, shares_C), -1)
        slope_J = np.einsum("nc,jnc->j", p_NC - truth_NC, score_JNC) / count
        from_mean_JNC = score_JNC - np.einsum("nc,jnc->jn", p_NC, score_JNC)[:, :, None]
        curvature_JJ = np.einsum("nc,inc,jnc->ij", p_NC, from_mean_JNC, from_mean_JNC) / count
        step_J = np.linalg.solve(curvature_JJ + _DAMPING * np.eye(len(counts_J)), -slope_J)
        # Where probabilities are near 0 or 1, a full step would overshoot.
        counts_J = (counts_J + np.clip(step_J, -0.5 * counts_J - 0.1, counts_J + 0.5)).clip(0)
    return tuple(counts_J.tolist())


def with_prior(p_QC: np.ndarray, shares_C: np.ndarray, prior_C: np.ndarray) -> np.ndarray:
    """Probabilities [Q, C] where classes are as common as `prior_C`, from those where they are as common as `shares_C`."""
    weighted_QC = p_QC * np.maximum(prior_C, _LEAST_PRIOR) / shares_C
    return weighted_QC / weighted_QC.sum(-1, keepdims=True)


def _logits(score_JNC: np.ndarray, counts_J: np.ndarray, shares_C: np.ndarray) -> np.ndarray:
    return np.log(shares_C) + np.tensordot(counts_J, score_JNC, 1)
