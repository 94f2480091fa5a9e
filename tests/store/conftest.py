"""Peaked distributions, as trained models have them, with the float64 divergences between them."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from knnprompt_jax import lm
from knnprompt_jax.models import head as head_lib

VOCABULARY, WIDTH = 4999, 97
SHIFT = -90.0  # Logits of trained models lie about here.


@dataclasses.dataclass(frozen=True)
class World:
    """A head, and anchors and queries as states, log-probabilities and divergences in float64."""

    head: head_lib.Head
    anchors: lm.States
    queries: lm.States
    labels_N: np.ndarray
    logk_NV: np.ndarray
    logp_QV: np.ndarray

    def divergences(self, direction: str) -> np.ndarray:
        """KL [Q, N] in nats."""
        p_QV, k_NV = np.exp(self.logp_QV), np.exp(self.logk_NV)
        if direction == "forward":
            return (p_QV * self.logp_QV).sum(-1)[:, None] - p_QV @ self.logk_NV.T
        return (k_NV * self.logk_NV).sum(-1) - self.logp_QV @ k_NV.T


def make_world(
    num_anchors: int = 211, num_queries: int = 53, vocabulary: int = VOCABULARY, width: int = WIDTH
) -> World:
    """Entropies of about 3 nats, nearest neighbours half a nat away; all logits shifted, so that naive sums cancel."""
    rng = np.random.default_rng(7)
    common_E = rng.normal(size=width)
    common_E /= np.linalg.norm(common_E)
    head_VE = 0.21 * rng.normal(size=(vocabulary, width)) + SHIFT / 20 * common_E
    modes_ME = rng.normal(size=(13, width))

    def draw(count: int) -> np.ndarray:
        own_NE = modes_ME[rng.integers(0, len(modes_ME), count)] * 1.0 + 0.45 * rng.normal(size=(count, width))
        return (20 * common_E + own_NE).astype(np.float32)

    head_VE = head_VE.astype(np.float32)
    (anchors, logk_NV), (queries, logp_QV) = (_states(head_VE, draw(count)) for count in (num_anchors, num_queries))
    return World(
        head_lib.Head(jnp.asarray(head_VE)), anchors, queries, rng.integers(0, 5, num_anchors), logk_NV, logp_QV
    )


def _states(head_VE: np.ndarray, hidden_NE: np.ndarray) -> tuple[lm.States, np.ndarray]:
    logits_NV = hidden_NE.astype(np.float64) @ head_VE.T.astype(np.float64)
    top_N1 = logits_NV.max(-1, keepdims=True)
    log_z_N1 = top_N1 + np.log(np.exp(logits_NV - top_N1).sum(-1, keepdims=True))
    return lm.States(jnp.asarray(hidden_NE), jnp.asarray(log_z_N1[:, 0], jnp.float32)), logits_NV - log_z_N1


@pytest.fixture(scope="session")
def world() -> World:
    return make_world()
