"""One anchor per class: the mean of its anchors' distributions. Section "Imbalance" of the paper uses the arithmetic mean."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from knnprompt_jax.models import head as head_lib
from knnprompt_jax.settings import stores
from knnprompt_jax.store import codec as codec_lib
from knnprompt_jax.store import distances, placement
from knnprompt_jax.store import store as store_lib

Array = jax.Array
_BLOCK = 64  # Anchors whose distributions are in memory at a time.


def of(store: store_lib.Store, kind: str, head: head_lib.Head, distance: str) -> store_lib.Store:
    """Return a dense store of one centroid per class that has anchors, to search by this distance; "none" keeps all anchors.

    "arithmetic" is the mean distribution, which minimises Σ KL(k_i ‖ c); "geometric" is the normalised mean of logarithms,
    which minimises Σ KL(c ‖ k_i).

    Raises:
        UserError: as `stores.check_centroid`.
    """
    stores.check_centroid(kind, distance)
    if kind == "none":
        return store
    classes = np.unique(store.labels_N)
    members = [np.flatnonzero(store.labels_N == label) for label in classes]
    keys = codec_lib.DenseKeys(jnp.stack([_mean(store, members_n, kind, distance) for members_n in members]))
    codec = codec_lib.Dense(head, store.codec.label_ids, {}, built_for=distance)
    anchors = placement.Anchors(keys, jnp.asarray(classes))
    return store_lib.Store(codec, anchors, classes, classes, memory_mb=store.memory_mb)


def _mean(store: store_lib.Store, members_n: np.ndarray, kind: str, distance: str) -> Array:
    """Return the centroid of some anchors over the tokens that the distance compares, from blocks of one shape."""
    total_V = jnp.array(-jnp.inf if kind == "arithmetic" else 0.0)
    for start in range(0, len(members_n), _BLOCK):
        keys = placement.take(store.unpadded.keys, np.resize(members_n[start : start + _BLOCK], _BLOCK))
        logk_nV = store.codec.log_probabilities(keys, distances.get(distance))
        total_V = _add(total_V, logk_nV, np.arange(_BLOCK) < len(members_n) - start, kind=kind)
    if kind == "arithmetic":
        return total_V - np.log(len(members_n))
    return jax.nn.log_softmax(total_V / len(members_n))


@functools.partial(jax.jit, static_argnames="kind")
def _add(total_V: Array, logk_nV: Array, counted_n: Array, *, kind: str) -> Array:
    """Add a block's counted rows to the total: of probabilities if the mean is arithmetic, otherwise of logarithms."""
    if kind == "arithmetic":
        block_V = jax.nn.logsumexp(jnp.where(counted_n[:, None], logk_nV, -jnp.inf), 0)
        return jnp.logaddexp(total_V, block_V)
    return total_V + jnp.where(counted_n[:, None], logk_nV, 0).sum(0)
