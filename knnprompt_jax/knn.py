"""The kernel: distances of a query to all anchors, the k smallest, their vote. Written for one query and vmapped.

Keys and queries are log-probabilities [V] in nats (over the vocabulary, or over the label words) or hidden states [E].
Ties: equal distances take the lower anchor index, equal votes the lower class index (or the class of the nearest anchor).
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import struct

Array = jax.Array
QUERIES_PER_TILE = 256


@struct.dataclass
class Neighbours:
    """The k nearest anchors of each query, nearest first; distances in nats (KL) or as Euclidean length (L2)."""

    distances_Qk: Array
    indices_Qk: Array
    labels_Qk: Array


def forward_kl(logp_V: Array, logk_NV: Array) -> Array:
    """KL(p ‖ k_i) = Σ p log p − Σ p log k_i for every anchor: Eq. 5 of the paper."""
    p_V = jnp.exp(logp_V)
    return p_V @ logp_V - logk_NV @ p_V


def released_kl(logp_V: Array, logk_NV: Array) -> Array:
    """KL(k_i ‖ p) for every anchor: the direction by which the paper's released code ranks."""
    k_NV = jnp.exp(logk_NV)
    return (k_NV * logk_NV).sum(-1) - k_NV @ logp_V


def euclidean(h_E: Array, keys_NE: Array) -> Array:
    """‖h − h_i‖ for every anchor, centred on the query so that nearby states lose no digits."""
    return jnp.linalg.norm(keys_NE - h_E, axis=-1)


DISTANCES: dict[str, Callable[[Array, Array], Array]] = {"forward": forward_kl, "released": released_kl, "l2": euclidean}


@functools.partial(jax.jit, static_argnames=("k", "distance"))
def search(queries_QV: Array, keys_NV: Array, labels_N: Array, *, k: int, distance: str) -> Neighbours:
    """The k nearest anchors of every query under a distance of `DISTANCES`; queries go tile by tile."""

    def nearest(query_V: Array) -> Neighbours:
        distances_N = DISTANCES[distance](query_V, keys_NV)
        nearness_k, indices_k = jax.lax.top_k(-distances_N, k)
        return Neighbours(-nearness_k, indices_k, labels_N[indices_k])

    with jax.named_scope("search"), jax.default_matmul_precision("highest"):
        return jax.lax.map(nearest, queries_QV, batch_size=min(QUERIES_PER_TILE, max(1, len(queries_QV))))


def vote_shares(labels_Qk: Array, num_classes: int, weights_Qk: Array | None = None) -> Array:
    """The share of the vote that each class has among the neighbours, [Q, C]; uniform unless weights are given."""
    votes_QkC = jax.nn.one_hot(labels_Qk, num_classes)
    if weights_Qk is not None:
        votes_QkC = votes_QkC * weights_Qk[..., None]
    votes_QC = votes_QkC.sum(1)
    return votes_QC / votes_QC.sum(-1, keepdims=True)


@functools.partial(jax.jit, static_argnames=("num_classes", "tie_break"))
def majority(labels_Qk: Array, *, num_classes: int, tie_break: str = "lowest") -> Array:
    """The class with most votes, [Q]; of several, the lowest index ("lowest") or that of the nearest neighbour among them ("nearest")."""
    counts_QC = jax.nn.one_hot(labels_Qk, num_classes, dtype=jnp.int32).sum(1)
    if tie_break == "lowest":
        return counts_QC.argmax(-1)
    leads_Qk = jnp.take_along_axis(counts_QC, labels_Qk, -1) == counts_QC.max(-1, keepdims=True)
    return jnp.take_along_axis(labels_Qk, leads_Qk.argmax(-1, keepdims=True), -1)[:, 0]
