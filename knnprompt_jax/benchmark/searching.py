"""Random stores and queries with the sizes of a model, and the lower bound of a search's time."""

import jax
import jax.numpy as jnp
import numpy as np

from knnprompt_jax import lm
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.store import StoreOptions
from knnprompt_jax.store import store as store_lib

Array = jax.Array
NUM_CLASSES = 2
_DISTINCT = 1024
_LOGIT_SCALE = 2.0  # Standard deviation in nats: peaked distributions, like those of trained models.


def random_head(config: config_lib.DecoderConfig) -> head_lib.Head:
    """Return a random head with the vocabulary and the width of a model."""
    rows_VE = jax.random.normal(jax.random.key(0), (config.vocab_size, config.state_width))
    return head_lib.Head(rows_VE * (_LOGIT_SCALE / config.state_width**0.5))


def random_states(head: head_lib.Head, count: int, seed: int) -> lm.States:
    """Return random states of a head's width."""
    hidden_NE = jax.random.normal(jax.random.key(seed), (count, head.rows_VE.shape[1]))
    return lm.States(hidden_NE, _log_partitions(head, hidden_NE))


def random_store(head: head_lib.Head, kind: str, distance: str, anchors: int) -> store_lib.Store:
    """Return a store of random anchors on one device.

    To save time, anchors beyond the first `_DISTINCT` repeat earlier keys with small differences.
    """
    distinct = min(anchors, _DISTINCT)
    classes = np.arange(anchors) % NUM_CLASSES
    options = StoreOptions(kind=kind)
    states = random_states(head, distinct, 1)
    store = store_lib.build(options, distance, head, states, classes[:distinct], range(NUM_CLASSES))
    if anchors == distinct:
        return store
    scale_N = 1 + 1e-3 * jax.random.normal(jax.random.key(3), (anchors,))

    def repeat(leaf: Array) -> Array:
        return (jnp.resize(leaf, (anchors, *leaf.shape[1:])).T * scale_N).T

    keys = jax.tree.map(repeat, store.keys)
    classes = classes.astype(np.int32)
    return store_lib.Store(store.codec, keys, jnp.asarray(classes), classes, np.arange(anchors))


def bound_seconds(queries: int, num_keys: int, operations_per_second: float, bytes_per_second: float) -> float:
    """Return the longer of two times: for the multiplications, and for reading all float32 numbers of the keys once."""
    return max(2 * queries * num_keys / operations_per_second, 4 * num_keys / bytes_per_second)


@jax.jit
def _log_partitions(head: head_lib.Head, hidden_NE: Array) -> Array:
    return jax.lax.map(lambda h_E: jax.nn.logsumexp(head.logits(h_E)), hidden_NE, batch_size=min(64, len(hidden_NE)))
