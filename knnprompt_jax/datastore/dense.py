"""The dense store: each anchor as its distance prepares it, e.g. log-probabilities of all tokens, as in the paper.

It can also hold one key per class, the mean of its anchors (the paper's section "Imbalance").
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from knnprompt_jax.datastore import distances, rowwise
from knnprompt_jax.inference import lm
from knnprompt_jax.models import head as head_lib

Array = jax.Array
_BLOCK = 64  # Anchors of a class mean whose distributions are in memory at a time.


@dataclasses.dataclass(frozen=True)
class DenseCodec:
    """Maps states to keys and queries of W numbers each (V, C or E), as the distance compares them.

    The keys and queries of a divergence also have an offset.

    Attributes:
        head: the head that gives distributions.
        distance: the distance of the search.
        label_tokens: one token per class.
        deterministic: whether products have fixed shapes, so that no distance depends on the number of queries or
            anchors.
    """

    head: head_lib.Head
    distance: distances.Distance
    label_tokens: tuple[int, ...]
    deterministic: bool = False

    def encode_anchors(self, states: lm.States) -> Any:
        """Return the keys of anchors: a pytree of arrays with N rows."""
        return self._represent(states, self.distance.prepare_anchor)

    def encode_queries(self, states: lm.States) -> Any:
        """Return the queries of `search_lib.search`: a pytree of arrays with Q rows, each as large as a key."""
        return self._represent(states, self.distance.prepare_query)

    def _represent(self, states: lm.States, prepare: Callable[[Array], Any]) -> Any:
        return distances.represent(self.head, states, self.distance.representation, self.label_tokens, prepare)

    def working_bytes(self, num_queries: int) -> int:
        """Return an upper bound on the memory of `encode_queries` beside its argument, its result and the head."""
        return 3 * 4 * rowwise.ROWS_PER_TILE_OF_LOGITS * len(self.head)


def encode_class_means(
    kind: str,
    distance: distances.Distance,
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
    members = (states.take_replicated(np.flatnonzero(classes_N == index)) for index in classes)
    means = [_mean(kind, distance, head, own, label_tokens) for own in members]
    return classes, jax.vmap(distance.prepare_anchor)(jnp.stack(means))


def _mean(
    kind: str, distance: distances.Distance, head: head_lib.Head, states: lm.States, label_tokens: Sequence[int]
) -> Array:
    """Return the logarithm of the mean of anchors over the tokens that the distance compares.

    The anchors are processed in blocks of one shape.
    """
    count = len(states)
    total_W = jnp.array(-jnp.inf if kind == "arithmetic" else 0.0)
    for start in range(0, count, _BLOCK):
        indices_n = np.arange(start, start + _BLOCK)
        block = states.take_replicated(indices_n % count)
        logk_nW = distances.represent(head, block, distance.representation, label_tokens)
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
