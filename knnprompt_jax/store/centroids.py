"""One anchor a class: the mean of the distributions of its anchors."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from knnprompt_jax.models import head as head_lib
from knnprompt_jax.store import dense, placement, stores

Array = jax.Array
ROWS = 64


def of(store: stores.Store, kind: str, head: head_lib.Head, representation: str = "distribution") -> stores.Store:
    """A dense store of the centroids of the classes that have anchors; see `dense.Datastore.centroids` for the kinds.

    A mean of distributions over V tokens is taken of 64 anchors at a time.
    """
    dense.check_centroids(kind)
    classes = np.unique(store.labels_N)
    if representation == "distribution":
        keys_CV = jnp.stack([_mean(store, np.flatnonzero(store.labels_N == label), kind) for label in classes])
    else:
        keys_NC = store.codec.references(store.unpadded.keys, representation, "forward")
        keys_CV = dense.Datastore(jnp.asarray(keys_NC), jnp.asarray(store.labels_N)).centroids(kind).keys_NV
    codec = dense.Codec(head, store.codec.label_ids, representation=representation)
    anchors = placement.Anchors(dense.Keys(keys_CV), jnp.asarray(classes))
    return stores.Store(codec, anchors, classes, memory_mb=store.memory_mb)


def _mean(store: stores.Store, members: np.ndarray, kind: str) -> Array:
    """The centroid [V] of some anchors, from blocks of one shape."""
    total_V = jnp.full(len(store.codec.head), -jnp.inf if kind == "arithmetic" else 0.0)
    for start in range(0, len(members), ROWS):
        block = np.resize(members[start : start + ROWS], ROWS)
        logk_nV = store.codec.distributions(placement.take(store.unpadded.keys, block))
        total_V = _add(total_V, logk_nV, np.arange(ROWS) < len(members) - start, kind=kind)
    return total_V - np.log(len(members)) if kind == "arithmetic" else jax.nn.log_softmax(total_V / len(members))


@functools.partial(jax.jit, static_argnames="kind")
def _add(total_V: Array, logk_nV: Array, counted_n: Array, *, kind: str) -> Array:
    if kind == "arithmetic":
        block_V = jax.nn.logsumexp(jnp.where(counted_n[:, None], logk_nV, -jnp.inf), 0)
        return jnp.logaddexp(total_V, block_V)
    return total_V + jnp.where(counted_n[:, None], logk_nV, 0).sum(0)
