"""Probabilities from scores of classes: how far each kind of score counts, by the log loss of anchors that others classify."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from knnprompt_jax import errors
from knnprompt_jax.classifier import predictions

UNIFORM = "uniform"
_STEPS, _DAMPING, _LEAST_PRIOR = 12, 1e-6, 1e-300


def probabilities(scores: Sequence[np.ndarray], counts: Sequence[float], shares_C: np.ndarray) -> np.ndarray:
    """softmax(log share + Σ_j count_j · score_j) [Q, C]: the classes' shares of the anchors where no score counts."""
    return _softmax(_logits(np.stack(scores), np.array(counts), shares_C))


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
        p_NC = _softmax(_logits(score_JNC, counts_J, shares_C))
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


def prior_of(prior: Any, labels_C: np.ndarray) -> np.ndarray | None:
    """How common each class is [C], in class order, from what a user gives as `class_prior`: None, "uniform", a share for each label in a
    mapping, or shares in the order of the labels sorted.

    Raises:
      UserError: as many other than there are classes, or one that is negative, or all 0.
    """
    if prior is None:
        return None
    told = f"class_prior={prior!r}"
    if isinstance(prior, str):
        if prior != UNIFORM:
            raise errors.UserError(f"{told}: choose {UNIFORM!r}, a share for each label, or None")
        return np.full(len(labels_C), 1 / len(labels_C))
    if isinstance(prior, Mapping):
        by_label = {str(label): share for label, share in prior.items()}
        if set(by_label) != set(map(str, labels_C.tolist())):
            raise errors.UserError(f"{told}: a share is needed for each of {', '.join(map(str, labels_C.tolist()))}")
        shares_C = np.array([by_label[str(label)] for label in labels_C.tolist()], float)
    else:
        shares_C = np.empty(len(labels_C))
        if np.shape(prior) != (len(labels_C),):
            raise errors.UserError(f"{told}: {len(labels_C)} shares are needed")
        shares_C[predictions.order(labels_C)] = np.asarray(prior, float)
    if not (np.isfinite(shares_C).all() and (shares_C >= 0).all() and shares_C.sum() > 0):
        raise errors.UserError(f"{told}: shares of 0 or more are needed, one at least above 0")
    return shares_C / shares_C.sum()


def _softmax(logit_QC: np.ndarray) -> np.ndarray:
    # That of scipy, without its import, which is a twentieth of a short run.
    weight_QC = np.exp(logit_QC - logit_QC.max(-1, keepdims=True))
    return np.asarray(weight_QC / weight_QC.sum(-1, keepdims=True))


def _logits(score_JNC: np.ndarray, counts_J: np.ndarray, shares_C: np.ndarray) -> np.ndarray:
    return np.log(shares_C) + np.tensordot(counts_J, score_JNC, 1)
