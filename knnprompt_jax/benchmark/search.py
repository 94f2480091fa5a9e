"""Searching a store: queries per second and bytes, beside bare matrix products and the device's own bounds."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from knnprompt_jax import errors, lm
from knnprompt_jax.benchmark import ceilings, peer_process, subjects, timing
from knnprompt_jax.benchmark import settings as settings_lib
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.store import distances, kernel
from knnprompt_jax.store import search as search_lib
from knnprompt_jax.store import store as store_lib

Array = jax.Array
FEWEST, GROWTH = 1024, 4  # Anchors of the smallest store, and by how much the next is larger.
# From the queries' states; from their keys, the kernel alone; and the product of as many numbers in other libraries.
STATES, KERNEL, NUMPY, TORCH = "states", "kernel", "numpy", "torch"
NUM_CLASSES = 2
LOGIT_SCALE = 2.0  # Standard deviation in nats: peaked distributions, as of trained models.


def run(settings: settings_lib.BenchmarkSettings, subject: subjects.Subject) -> dict[str, Any]:
    """Every kind, from 1,024 anchors by fours to what fits in `max_store_gb`, for every number of queries.

    Raises UserError where not even the smallest store of a kind fits.
    """
    config = subject.config
    rows_VE = jax.random.normal(jax.random.key(0), (config.vocab_size, config.state_width))
    head = head_lib.Head(rows_VE * (LOGIT_SCALE / config.state_width**0.5), config.logit_cap)
    sizes = {kind: _sizes(settings, head, kind) for kind in settings.kinds}
    products = ceilings.MatrixProducts(jnp.float32, settings.ceiling_side)
    peak = max(products.rates(timing.medians(products.turns, settings.repetitions)).values())
    bandwidth = ceilings.bandwidth(settings.ceiling_side, settings.repetitions)
    with_torch = peer_process.TORCH.installed() and bool({*settings.peers} & {*peer_process.TORCH.peers})
    with peer_process.start(peer_process.TORCH) if with_torch else contextlib.nullcontext() as process:
        rows = [
            row
            for kind in settings.kinds
            for anchors in sizes[kind]
            for row in _measure(settings, head, kind, anchors, process)
        ]
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
            f"max_store_gb={settings.max_store_gb:g} or max_anchors={settings.max_anchors} is too small"
        )
    return sizes


def _measure(
    settings: settings_lib.BenchmarkSettings,
    head: head_lib.Head,
    kind: str,
    anchors: int,
    process: peer_process.PeerProcess | None,
) -> Iterator[dict[str, Any]]:
    """A row for each number of queries."""
    store = store_lib.build(
        store_lib.StoreOptions(kind=kind),
        settings.distance,
        head,
        _states(head, anchors, 1),
        np.arange(anchors) % NUM_CLASSES,
        range(NUM_CLASSES),
    )
    options, distance = search_lib.SearchOptions(settings.k, settings.distance), distances.get(settings.distance)
    references, measured_by = store.codec.references(store.anchors.keys, distance), store.codec.measured_by(distance)
    leaves = jax.tree.leaves(references)
    width = max(leaf.shape[-1] for leaf in leaves if leaf.ndim > 1)
    for count in settings.queries:
        states, numbers_NW, numbers_QW = _states(head, count, 2), _numbers(anchors, width), _numbers(count, width)
        keys = store.codec.queries(states, distance)
        from_keys = functools.partial(kernel.search, keys, references, store.anchors.labels_N)
        work = {
            STATES: functools.partial(store.search, states, options),
            KERNEL: functools.partial(from_keys, k=options.k, distance=measured_by),
            NUMPY: functools.partial(np.matmul, numbers_NW, numbers_QW.T),
        }
        turns = {name: timing.stopwatch(search) for name, search in work.items()}
        if process:
            process.ask("operands", anchors=anchors, width=width, queries=count)
            turns[TORCH] = functools.partial(process.ask, "product")
        seconds = timing.medians(turns, settings.repetitions)
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


def _states(head: head_lib.Head, count: int, seed: int) -> lm.States:
    hidden_NE = jax.random.normal(jax.random.key(seed), (count, head.rows_VE.shape[1]))
    return lm.States(hidden_NE, _log_partitions(head, hidden_NE))


@jax.jit
def _log_partitions(head: head_lib.Head, hidden_NE: Array) -> Array:
    return jax.lax.map(lambda h_E: jax.nn.logsumexp(head.logits(h_E)), hidden_NE, batch_size=min(64, len(hidden_NE)))


def _numbers(rows: int, width: int) -> np.ndarray:
    """Random numbers, repeated: as good as fresh ones for timing, and quickly made."""
    return np.resize(np.random.default_rng(0).standard_normal(2**20, np.float32), (rows, width))
