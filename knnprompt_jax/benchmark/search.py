"""Searching a store: queries per second and bytes, beside the device's bounds and other libraries.

Every library computes with the same number of float32 numbers per anchor: NumPy the bare matrix product, FAISS and scikit-learn an exact
search by inner product and by Euclidean distance.
"""

import functools
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from knnprompt_jax import errors, lm
from knnprompt_jax.benchmark import settings as settings_lib
from knnprompt_jax.benchmark import timing
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.planning import workload
from knnprompt_jax.store import distances, kernel
from knnprompt_jax.store import search as search_lib
from knnprompt_jax.store import store as store_lib

Array = jax.Array
FEWEST, GROWTH = 1024, 4  # The number of anchors of the smallest store, and the factor to the next.
STATES, KERNEL = "states", "kernel"  # Ours: from the queries' states, or from their keys (the kernel alone).
NUM_CLASSES = 2
LOGIT_SCALE = 2.0  # Standard deviation in nats: peaked distributions, like those of trained models.


def run(settings: settings_lib.BenchmarkSettings, subject: workload.Subject) -> dict[str, Any]:
    """Measure every kind of store, from 1,024 anchors up to `max_store_gb`, for every number of queries.

    Raises:
        UserError: not even the smallest store of a kind fits.
    """
    config = subject.config
    rows_VE = jax.random.normal(jax.random.key(0), (config.vocab_size, config.state_width))
    head = head_lib.Head(rows_VE * (LOGIT_SCALE / config.state_width**0.5), config.logit_cap)
    sizes = {kind: _sizes(settings, head, kind) for kind in store_lib.KINDS}
    products = timing.matrix_products(jnp.float32)
    seconds = timing.medians({name: turn for name, (turn, _) in products.items()}, settings.repetitions)
    peak = max(count / seconds[name] for name, (_, count) in products.items())
    bandwidth = timing.bandwidth(settings.repetitions)
    rows = [row for kind in sizes for anchors in sizes[kind] for row in _measure(settings, head, kind, anchors)]
    for row in rows:
        bounds = {"bandwidth": row["bytes_read"] / bandwidth, "matrix products": row["flops"] / peak}
        row["bound"] = max(bounds, key=lambda name: bounds[name])
        row["share_of_bound"] = bounds[row["bound"]] / row["seconds"][KERNEL]
    return {"distance": settings.distance, "peak_flops_per_second": peak, "bytes_per_second": bandwidth, "rows": rows}


def _sizes(settings: settings_lib.BenchmarkSettings, head: head_lib.Head, kind: str) -> list[int]:
    options = store_lib.StoreOptions(kind=kind)
    vocabulary, width = head.rows_VE.shape
    each = store_lib.anchor_bytes(options, settings.distance, head.cap, vocabulary, width, NUM_CLASSES)
    most = min(settings.max_anchors, int(settings.max_store_gb * 1e9 / each))
    sizes = [FEWEST * GROWTH**step for step in range(20) if FEWEST * GROWTH**step <= most]
    if not sizes:
        raise errors.UserError(
            f"a {kind} store of {FEWEST} anchors takes {FEWEST * each / 1e9:.4f} GB: "
            f"--max_store_gb={settings.max_store_gb:g} or --max_anchors={settings.max_anchors} is too small"
        )
    return sizes


def _measure(
    settings: settings_lib.BenchmarkSettings, head: head_lib.Head, kind: str, anchors: int
) -> Iterator[dict[str, Any]]:
    """Yield a row for each number of queries."""
    classes = np.arange(anchors) % NUM_CLASSES
    states = _states(head, anchors, 1)
    store = store_lib.build(
        store_lib.StoreOptions(kind=kind), settings.distance, head, states, classes, range(NUM_CLASSES)
    )
    options, distance = search_lib.SearchOptions(settings.k, settings.distance), distances.get(settings.distance)
    references, measured_by = store.codec.references(store.anchors.keys, distance), store.codec.measured_by(distance)
    leaves = jax.tree.leaves(references)
    width = max(leaf.shape[-1] for leaf in leaves if leaf.ndim > 1)
    numbers_NW = _numbers(anchors, width)
    prepared = {name: make(numbers_NW, options.k) for name, make in PEERS.items() if importlib.util.find_spec(name)}
    for count in settings.queries:
        states, numbers_QW = _states(head, count, 2), _numbers(count, width)
        keys = store.codec.queries(states, distance)
        from_keys = functools.partial(kernel.search, keys, references, store.anchors.labels_N)
        work: dict[str, Callable[[], Any]] = {
            STATES: functools.partial(store.search, states, options),
            KERNEL: functools.partial(from_keys, k=options.k, distance=measured_by),
        }
        work |= {name: functools.partial(search, numbers_QW) for name, search in prepared.items()}
        seconds = timing.medians({name: timing.stopwatch(each) for name, each in work.items()}, settings.repetitions)
        yield {
            "kind": kind,
            "anchors": anchors,
            "queries": count,
            "bytes": store.nbytes,
            "bytes_read": sum(leaf.nbytes for leaf in leaves),
            "bytes_per_anchor": store.bytes_per_anchor,
            "search_bytes": store.plan(count, options).nbytes,
            "flops": 2 * count * anchors * width,
            "seconds": seconds,
            "queries_per_second": {name: count / value for name, value in seconds.items()},
        }


def _numpy(numbers_NW: np.ndarray, k: int) -> Callable[[np.ndarray], Any]:
    return lambda numbers_QW: numbers_NW @ numbers_QW.T


def _faiss(numbers_NW: np.ndarray, k: int) -> Callable[[np.ndarray], Any]:
    import faiss

    index = faiss.IndexFlatIP(numbers_NW.shape[1])
    index.add(numbers_NW)
    return lambda numbers_QW: index.search(numbers_QW, k)


def _sklearn(numbers_NW: np.ndarray, k: int) -> Callable[[np.ndarray], Any]:
    import sklearn.neighbors

    return sklearn.neighbors.NearestNeighbors(n_neighbors=k, algorithm="brute").fit(numbers_NW).kneighbors


PEERS = {"numpy": _numpy, "faiss": _faiss, "sklearn": _sklearn}
"""A peer takes the anchors [N, W] and k, and returns its search of queries [Q, W]. Peers are named like the packages that they import."""


def _states(head: head_lib.Head, count: int, seed: int) -> lm.States:
    hidden_NE = jax.random.normal(jax.random.key(seed), (count, head.rows_VE.shape[1]))
    return lm.States(hidden_NE, _log_partitions(head, hidden_NE))


@jax.jit
def _log_partitions(head: head_lib.Head, hidden_NE: Array) -> Array:
    return jax.lax.map(lambda h_E: jax.nn.logsumexp(head.logits(h_E)), hidden_NE, batch_size=min(64, len(hidden_NE)))


def _numbers(rows: int, width: int) -> np.ndarray:
    """Return random numbers [rows, width], repeated: for timing they serve like fresh ones and are made quickly."""
    return np.resize(np.random.default_rng(0).standard_normal(2**20, np.float32), (rows, width))
