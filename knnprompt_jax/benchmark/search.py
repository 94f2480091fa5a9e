"""Searching a store: queries per second and bytes, beside other libraries.

Every library computes with the same number of float32 numbers per anchor: JAX and NumPy the bare matrix product, FAISS and scikit-learn an
exact search by inner product and by Euclidean distance.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sklearn.neighbors

from knnprompt_jax import errors, lm
from knnprompt_jax.benchmark import settings as settings_lib
from knnprompt_jax.benchmark import timing
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.planning import workload
from knnprompt_jax.store import distances, kernel
from knnprompt_jax.store import search as search_lib
from knnprompt_jax.store import store as store_lib

try:
    import faiss
except ImportError:
    faiss = None  # type: ignore[assignment]

Array = jax.Array
NUM_CLASSES = 2
LOGIT_SCALE = 2.0  # Standard deviation in nats: peaked distributions, like those of trained models.


def run(settings: settings_lib.BenchmarkSettings, subject: workload.Subject) -> dict[str, Any]:
    """Measure every kind of store with every number of anchors and queries, as long as it takes at most `max_store_gb`.

    Raises:
        UserError: no store fits.
    """
    config, distance = subject.config, settings.distance
    rows: list[dict[str, Any]] = []
    rows_VE = jax.random.normal(jax.random.key(0), (config.vocab_size, config.state_width))
    head = head_lib.Head(rows_VE * (LOGIT_SCALE / config.state_width**0.5), config.logit_cap)
    for kind in store_lib.KINDS:
        each = store_lib.anchor_bytes(store_lib.StoreOptions(kind=kind), distance, config, NUM_CLASSES)
        for anchors in settings.stored:
            if anchors * each <= settings.max_store_gb * 1e9:
                rows += _measure(settings, head, kind, anchors)
    if not rows:
        raise errors.UserError(
            f"--max_store_gb={settings.max_store_gb:g}: no store of {settings.stored} anchors is smaller"
        )
    return {"distance": distance, "queries_per_second": rows}


def _measure(
    settings: settings_lib.BenchmarkSettings, head: head_lib.Head, kind: str, anchors: int
) -> Iterator[dict[str, Any]]:
    """Yield a row for each number of queries: bytes, queries per second, and the share of the bare product's speed."""
    classes = np.arange(anchors) % NUM_CLASSES
    states = _states(head, anchors, 1)
    store = store_lib.build(
        store_lib.StoreOptions(kind=kind), settings.distance, head, states, classes, range(NUM_CLASSES)
    )
    options, distance = search_lib.SearchOptions(settings.k, settings.distance), distances.get(settings.distance)
    references = store.codec.references(store.anchors.keys, distance)
    how = kernel.Options(options.k, store.codec.measured_by(distance))
    leaves = jax.tree.leaves(references)
    width = max(leaf.shape[-1] for leaf in leaves if leaf.ndim > 1)
    numbers_NW = _numbers(anchors, width)
    nearest = sklearn.neighbors.NearestNeighbors(n_neighbors=options.k, algorithm="brute").fit(numbers_NW)
    if faiss:
        index = faiss.IndexFlatIP(width)
        index.add(numbers_NW)
    for count in settings.queries:
        states, numbers_QW = _states(head, count, 2), _numbers(count, width)
        keys = store.codec.queries(states, distance)
        work: dict[str, Callable[[], Any]] = {
            "from_states": functools.partial(store.search, states, options),
            "from_keys": functools.partial(kernel.search, keys, references, store.anchors.labels_N, how),
            "product": functools.partial(_product, jnp.asarray(numbers_NW), jnp.asarray(numbers_QW)),
            "numpy": functools.partial(np.matmul, numbers_NW, numbers_QW.T),
            "sklearn": functools.partial(nearest.kneighbors, numbers_QW),
        }
        if faiss:
            work["faiss"] = functools.partial(index.search, numbers_QW, options.k)
        seconds = timing.medians({name: timing.stopwatch(each) for name, each in work.items()}, settings.repetitions)
        yield {
            "store": kind,
            "anchors": anchors,
            "queries": count,
            "mb": store.nbytes / 1e6,
            "mb_in_search": store.plan(count, options).nbytes / 1e6,
            **{name: count / value for name, value in seconds.items()},
            "share_of_product": seconds["product"] / seconds["from_keys"],
        }


def _states(head: head_lib.Head, count: int, seed: int) -> lm.States:
    hidden_NE = jax.random.normal(jax.random.key(seed), (count, head.rows_VE.shape[1]))
    return lm.States(hidden_NE, _log_partitions(head, hidden_NE))


@jax.jit
def _log_partitions(head: head_lib.Head, hidden_NE: Array) -> Array:
    return jax.lax.map(lambda h_E: jax.nn.logsumexp(head.logits(h_E)), hidden_NE, batch_size=min(64, len(hidden_NE)))


@jax.jit
def _product(numbers_NW: Array, numbers_QW: Array) -> Array:
    return jnp.matmul(numbers_NW, numbers_QW.T, precision="highest")


def _numbers(rows: int, width: int) -> np.ndarray:
    """Return random numbers [rows, width], repeated: for timing they serve like fresh ones and are made quickly."""
    return np.resize(np.random.default_rng(0).standard_normal(2**20, np.float32), (rows, width))
