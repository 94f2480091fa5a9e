"""Class means: one key per class instead of all anchors, as in the paper's section "Imbalance"."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from knnprompt_jax.datastore import representations
from knnprompt_jax.datastore.distances import Distance
from knnprompt_jax.inference import lm
from knnprompt_jax.models import head as head_lib

Array = jax.Array
_BLOCK = 64  # Anchors whose distributions are in memory at a time.


def encode(
    kind: str,
    distance: Distance,
    head: head_lib.Head,
    states: lm.States,
    classes_N: np.ndarray,
    label_tokens: Sequence[int],
) -> tuple[np.ndarray, Any]:
    """Return the classes that have anchors, and the keys of their means for a divergence.

    Args:
        kind: "arithmetic" is the mean distribution, which minimises Σ KL(k_i ‖ c); "geometric" is the normalised mean
            of logarithms, which minimises Σ KL(c ‖ k_i).
    """
    classes = np.unique(classes_N)
    means = []
    for index in classes:
        members = states.take_replicated(np.flatnonzero(classes_N == index))
        means.append(_mean(kind, distance, head, members, label_tokens))
    return classes, jax.vmap(distance.prepare_anchor)(jnp.stack(means))


def _mean(kind: str, distance: Distance, head: head_lib.Head, states: lm.States, label_tokens: Sequence[int]) -> Array:
    """Return the logarithm of the mean of anchors over the tokens that the distance compares.

    The anchors are processed in blocks of one shape.
    """
    count = len(states)
    total_W = jnp.array(-jnp.inf if kind == "arithmetic" else 0.0)
    for start in range(0, count, _BLOCK):
        indices_n = np.arange(start, start + _BLOCK)
        block = states.take_replicated(indices_n % count)
        logk_nW = representations.represent(head, block, distance.representation, label_tokens)
        total_W = _add(total_W, logk_nW, indices_n < count, kind=kind)
    if kind == "arithmetic":
        return total_W - np.log(count)
    return jax.nn.log_softmax(total_W / count)


@functools.partial(jax.jit, static_argnames="kind")
def _add(total_W: Array, logk_nW: Array, is_counted_n: Array, *, kind: str) -> Array:
    """Add a block's counted rows to the total: of probabilities if the mean is arithmetic, otherwise of logarithms."""
    if kind == "arithmetic":
        block_W = jax.nn.logsumexp(jnp.where(is_counted_n[:, None], logk_nW, -jnp.inf), 0)
        return jnp.logaddexp(total_W, block_W)
    return total_W + jnp.where(is_counted_n[:, None], logk_nW, 0).sum(0)
