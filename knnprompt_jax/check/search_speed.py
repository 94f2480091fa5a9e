"""The speed of searching a store on one device, beside the bound of its arithmetic and its memory."""

import functools
from collections.abc import Iterator

from knnprompt_jax.benchmark import searching, timing, workload
from knnprompt_jax.check import environment, findings
from knnprompt_jax.check import inputs as inputs_lib
from knnprompt_jax.store import StoreOptions
from knnprompt_jax.store import search as search_lib
from knnprompt_jax.store import store as store_lib

TABLE = "search_speed"
_MODEL = "gpt2"  # The stores have its vocabulary and width.
_DISTANCE = "kl"
_K = 3
_STORES = (("factored", 100_000), ("factored", 1_000_000), ("dense", 4096))
_QUERIES = (1, 4096)
_REPETITIONS = 3
_COPIES = 2  # The keys exist twice while a store is made.
_MAKING = 20.0  # Seconds to make a store and to compile.


def run(inputs: inputs_lib.Inputs, kind: str, anchors: int, queries: int) -> Iterator[findings.Finding]:
    """Measure searches that start from the queries' vectors."""
    head = searching.random_head(workload.describe(_MODEL).config)
    store = searching.random_store(head, kind, _DISTANCE, anchors)
    encoded = store.codec.encode_queries(searching.random_states(head, queries, 2))
    options = store.plan(queries, _K).options
    search = functools.partial(search_lib.search, encoded, store.keys, store.classes_M, options)
    seconds = timing.medians({"search": timing.stopwatch(search)}, _REPETITIONS)["search"]
    bound = _bound(inputs, store.keys.vector.size, queries)
    yield findings.Row(
        TABLE,
        {
            "store": kind,
            "anchors": anchors,
            "queries": queries,
            "queries/s": queries / seconds,
            "milliseconds": 1000 * seconds,
            "share_of_bound": bound / seconds,
        },
    )


def _bound(inputs: inputs_lib.Inputs, num_key_floats: int, queries: int) -> float:
    speeds = inputs.operations_per_second["float32"], inputs.bytes_per_second
    return searching.bound_seconds(queries, num_key_floats, *speeds)


def _num_bytes(kind: str, anchors: int) -> int:
    config = workload.describe(_MODEL).config
    return anchors * store_lib.anchor_bytes(StoreOptions(kind), _DISTANCE, config, searching.NUM_CLASSES)


def _seconds(inputs: inputs_lib.Inputs, kind: str, anchors: int, queries: int) -> float:
    """Estimate a measurement: searches run at half the bound's speed or faster."""
    return _MAKING + 2 * (1 + _REPETITIONS) * _bound(inputs, _num_bytes(kind, anchors) // 4, queries)


def _misfit(kind: str, anchors: int) -> str:
    """Return why a store cannot be made: too little memory."""
    return environment.misfit(_COPIES * _num_bytes(kind, anchors) + 2**30)


CHECKS = tuple(
    findings.Check(
        f"search speed: {kind}, {anchors:,} anchors, {queries:,} {'query' if queries == 1 else 'queries'}",
        functools.partial(run, kind=kind, anchors=anchors, queries=queries),
        seconds=functools.partial(_seconds, kind=kind, anchors=anchors, queries=queries),
        misfit=functools.partial(_misfit, kind=kind, anchors=anchors),
        is_measurement=True,
    )
    for kind, anchors in _STORES
    for queries in _QUERIES
)
