"""Measure a store's search in queries per second, beside device limits, bare matrix products and other libraries.

pip install faiss-cpu torch    # optional
python tools/benchmark_search.py --model=gpt2 --stored=1024,4096,16384,65536,1048576 --max_store_gb=3.25 --repetitions=2

Every library has the same anchors and queries. Libraries that search by inner product have the anchors' offsets as one
more number. Libraries that search by Euclidean distance also have the number that makes all anchors equally long.
"""

import functools
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sklearn.neighbors

from knnprompt_jax import app, distances, errors, lm, options
from knnprompt_jax.benchmark import peer_process, report, searching, timing, workload
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.store import StoreOptions
from knnprompt_jax.store import search as search_lib
from knnprompt_jax.store import store as store_lib

faiss = importlib.import_module("faiss") if importlib.util.find_spec("faiss") else None
torch = importlib.import_module("torch") if importlib.util.find_spec("torch") else None

Array = jax.Array
Work = dict[str, Callable[[], Any]]
PEERS = ("numpy", "torch", "faiss_ip", "faiss_l2", "sklearn")
MAX_PEER_BYTES = 10**9  # The peers copy larger stores too often for the memory of a usual machine.


class SearchSettings(options.Options):
    """The stores and searches to measure."""

    model: str = options.option(
        "gpt2", "Published shape, folder, .gguf file or Hub name; only its sizes count.", nonempty=True
    )
    distance: str = options.option("kl", "Distance of the search.", choices=distances.DISTANCES)
    queries: tuple[int, ...] = options.option((1, 256), "Numbers of queries per search.", least=1, nonempty=True)
    k: int = options.option(3, "Neighbours per query.", least=1)
    stored: tuple[int, ...] = options.option(
        (1024, 4096, 16384, 65536), "Anchors in each store.", least=1, nonempty=True
    )
    max_store_gb: float = options.option(
        1.0, "The largest store in GB of 10⁹ bytes; larger ones are left out.", least=0
    )
    repetitions: int = options.option(3, "Rounds; each contender has one timed turn per round.", least=1)
    output: str = options.option("benchmarks", "Folder of the JSON file.", nonempty=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k > min(self.stored):
            raise errors.UserError(f"--k={self.k}: the smallest store has {min(self.stored)} anchors (--stored)")


def run(settings: SearchSettings) -> dict[str, Any]:
    """Measure each of the `sizes` with every number of queries."""
    config = workload.describe(settings.model).config
    head = searching.random_head(config)
    rows = [row for kind, anchors in sizes(settings, config) for row in _measure(settings, head, kind, anchors)]
    return {"model": settings.model, "distance": settings.distance, "queries_per_second": rows}


def sizes(settings: SearchSettings, config: config_lib.DecoderConfig) -> list[tuple[str, int]]:
    """Return the kinds of store that the model supports, each with the numbers of anchors of at most `max_store_gb`.

    Raises:
        UserError: no store is small enough.
    """
    found = []
    for kind in ("dense", "factored"):
        size = store_lib.anchor_bytes(StoreOptions(kind=kind), settings.distance, config, searching.NUM_CLASSES)
        found += [(kind, anchors) for anchors in settings.stored if anchors * size <= settings.max_store_gb * 1e9]
    if not found:
        raise errors.UserError(
            f"--max_store_gb={settings.max_store_gb:g}: no store of {settings.stored} anchors is smaller"
        )
    return found


def _measure(settings: SearchSettings, head: head_lib.Head, kind: str, anchors: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each number of queries, with its bytes, speed and comparisons.

    The comparisons are shares of the bound and of the products, and the peers' recall.

    The bound is the longer of two times: for the multiplications at the speed of large matrix products, and for reading
    the anchors once at the speed of a product with one vector. Both speeds are measured in turn with everything else.
    """
    store = searching.random_store(head, kind, settings.distance, anchors)
    distance = distances.get(settings.distance)
    keys = _affine(store.keys)
    rows_VE = head.rows_VE if distance.direction == "kl" or kind == "dense" else None
    for count in settings.queries:
        states = searching.random_states(head, count, 2)
        plan = store.plan(count, settings.k)
        queries = store.codec.encode_queries(states)
        vectors_QW = _affine(queries).vector
        work: Work = {
            "labels": functools.partial(_labels, store, states, settings.k),
            "from_keys": functools.partial(search_lib.search, queries, store.keys, store.classes_M, plan.options),
            "product": functools.partial(_product, keys.vector, vectors_QW),
            "head": functools.partial(_project, rows_VE, states.hidden_NE, kind == "factored"),
        }
        work |= _peers(keys, vectors_QW, settings.k) if store.num_bytes <= MAX_PEER_BYTES else {}
        turns = {name: timing.stopwatch(search) for name, search in work.items()}
        turns["operations"], operations = timing.matrix_products(jnp.float32)
        turns["bytes"], nbytes = timing.memory_reads()
        seconds = timing.medians(turns, settings.repetitions, peer_process.SETTLE_SECONDS)
        found = work["from_keys"]().indices_Qk
        speeds = (operations / seconds["operations"], nbytes / seconds["bytes"])
        bound = searching.bound_seconds(count, keys.vector.size, *speeds)
        yield {
            "store": kind,
            "anchors": anchors,
            "queries": count,
            "mb": store.num_bytes / 1e6,
            "mb_in_search": plan.num_bytes / 1e6,
            "labels": count / seconds["labels"],
            "time_of_products": seconds["labels"] / (seconds["head"] + seconds["product"]),
            "from_keys": count / seconds["from_keys"],
            "share_of_bound": bound / seconds["from_keys"],
            "share_of_product": seconds["product"] / seconds["from_keys"],
            **{name: count / seconds[name] if name in seconds else "-" for name in PEERS},
            **{
                f"recall_by_{means}": min((_recall(found, work[name]()) for name in names if name in work), default="-")
                for means, names in (("product", PEERS[:3]), ("l2", PEERS[3:]))
            },
        }


def _labels(store: store_lib.Store, states: lm.States, k: int) -> np.ndarray:
    return search_lib.vote(store.search(states, k), searching.NUM_CLASSES)[0]


def _peers(keys: distances.Affine, vectors_QW: Array, k: int) -> Work:
    """Return the search of each other library: from vectors to the indices of the nearest anchors."""
    keys_NW = np.column_stack([keys.vector, -keys.offset]).astype(np.float32)
    queries_QW = np.column_stack([vectors_QW, np.ones(len(vectors_QW), np.float32)]).astype(np.float32)
    squares_N = (keys_NW**2).sum(-1)
    long_NW = np.column_stack([keys_NW, np.sqrt(squares_N.max() - squares_N)])
    long_QW = np.column_stack([queries_QW, np.zeros(len(queries_QW), np.float32)])
    nearest = sklearn.neighbors.NearestNeighbors(n_neighbors=k, algorithm="brute").fit(long_NW)
    work: Work = {
        "numpy": lambda: np.argpartition(queries_QW @ keys_NW.T, -k)[:, -k:],
        "sklearn": lambda: nearest.kneighbors(long_QW)[1],
    }
    if torch:
        queries = torch.from_numpy(queries_QW)
        anchors = torch.from_numpy(keys_NW)
        work["torch"] = lambda: torch.topk(queries @ anchors.T, k).indices.numpy()
    if faiss:
        by_product = faiss.IndexFlatIP(keys_NW.shape[1])
        by_product.add(keys_NW)
        by_l2 = faiss.IndexFlatL2(long_NW.shape[1])
        by_l2.add(long_NW)
        work["faiss_ip"] = lambda: by_product.search(queries_QW, k)[1]
        work["faiss_l2"] = lambda: by_l2.search(long_QW, k)[1]
    return work


def _affine(rows: Any) -> distances.Affine:
    """Return the vectors and offsets whose inner products rank like the distances.

    Rows without an offset belong to a Euclidean distance.
    """
    return rows if isinstance(rows, distances.Affine) else distances.Affine(rows, (rows**2).sum(-1) / 2)


def _recall(found_Qk: Any, others_Qk: np.ndarray) -> float:
    return float(np.mean([np.isin(*pair) for pair in zip(np.asarray(found_Qk), others_Qk, strict=True)]))


@jax.jit
def _product(keys_NW: Array, queries_QW: Array) -> Array:
    return jnp.einsum("nw,qw->nq", keys_NW, queries_QW, precision="highest")


@functools.partial(jax.jit, static_argnames="back")
def _project(rows_VE: Array | None, hidden_QE: Array, back: bool) -> Array | None:
    """Return the head's products that a search from states cannot do without: logits, or what they weight (`back`)."""
    if rows_VE is None:
        return None
    logits_VQ = jax.lax.optimization_barrier(_product(rows_VE, hidden_QE))
    return jnp.einsum("vq,ve->qe", logits_VQ, rows_VE, precision="highest") if back else logits_VQ


if __name__ == "__main__":
    FLAGS = app.Flags(SearchSettings, keeps_programs=False)

    def main() -> None:
        """Print and save the result."""
        result = report.describe_machine() | run(FLAGS.value)
        report.publish(FLAGS.value.output, "search", FLAGS.value, result)

    FLAGS.run(main)
