"""Peaked distributions, as trained models have them, with the distances between them by NumPy in float64."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from scipy import special

Array = np.ndarray
LABEL_TOKENS = (3, 4998, 7, 11, 13)
SHIFT = -90.0  # Logits of trained models lie about here.
VOCABULARY = 4999
WIDTH = 97


@dataclasses.dataclass(frozen=True)
class World:
    """A head, and anchors and queries as states with their log-partitions (float32) and log-probabilities (float64)."""

    head_VE: Array
    hidden_NE: Array
    log_z_N: Array
    logk_NV: Array
    hidden_QE: Array
    log_z_Q: Array
    logp_QV: Array


def divergences(direction: str, logp_QV: Array, logk_NV: Array) -> Array:
    """Return KL [Q, N] in nats."""
    if direction == "kl":
        return (np.exp(logp_QV) * logp_QV).sum(-1)[:, None] - np.exp(logp_QV) @ logk_NV.T
    return (np.exp(logk_NV) * logk_NV).sum(-1) - logp_QV @ np.exp(logk_NV).T


def distances(
    name: str, h_QE: Array, h_NE: Array, logp_QV: Array, logk_NV: Array, label_tokens: Sequence[int] = LABEL_TOKENS
) -> Array:
    """Return distances [Q, N] by their definition."""
    if name == "l2":
        return np.linalg.norm(h_QE.astype(float)[:, None] - h_NE.astype(float), axis=-1)
    if name.endswith("labels"):
        logp_QV = special.log_softmax(logp_QV[:, label_tokens], axis=-1)
        logk_NV = special.log_softmax(logk_NV[:, label_tokens], axis=-1)
    return divergences("reverse_kl" if name.startswith("reverse") else "kl", logp_QV, logk_NV)


def draw(num_anchors: int = 211, num_queries: int = 53, vocabulary: int = VOCABULARY, width: int = WIDTH) -> World:
    """Return distributions with about 3 nats of entropy and nearest neighbours half a nat away.

    All logits are shifted, so that naive sums cancel.
    """
    rng = np.random.default_rng(7)
    common_E = rng.normal(size=width)
    common_E /= np.linalg.norm(common_E)
    head_VE = (0.21 * rng.normal(size=(vocabulary, width)) + SHIFT / 20 * common_E).astype(np.float32)
    modes_ME = rng.normal(size=(13, width))
    parts = []
    for count in (num_anchors, num_queries):
        around_NE = modes_ME[rng.integers(0, len(modes_ME), count)] + 0.45 * rng.normal(size=(count, width))
        hidden_NE = (20 * common_E + around_NE).astype(np.float32)
        logits_NV = hidden_NE.astype(np.float64) @ head_VE.T.astype(np.float64)
        logp_NV = special.log_softmax(logits_NV, axis=-1)
        parts += [hidden_NE, (logits_NV - logp_NV)[:, 0].astype(np.float32), logp_NV]
    return World(head_VE, *parts)
