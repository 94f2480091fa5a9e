"""Measure a store's search in queries per second, beside device limits, bare matrix products and other libraries.

pip install faiss-cpu torch    # optional
python -m tools.benchmark_search --model=gpt2 --stored=1024,4096,16384,65536,1048576 --max_store_gb=3.25 --repetitions=2

Every library has the same anchors and queries. Libraries that search by inner product have the anchors' offsets as one
more number. Libraries that search by Euclidean distance also have the number that makes all anchors equally long.
"""

import functools
import importlib.util
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sklearn.neighbors

from knnprompt_jax.cli import app
from knnprompt_jax.common import errors, options
from knnprompt_jax.datastore import StoreOptions, distances
from knnprompt_jax.datastore import search as search_lib
from knnprompt_jax.datastore import store as store_lib
from knnprompt_jax.devices import device_report, machine, workload
from knnprompt_jax.inference import lm
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import head as head_lib
from tools import peer_process

faiss = importlib.import_module("faiss") if importlib.util.find_spec("faiss") else None
torch = importlib.import_module("torch") if importlib.util.find_spec("torch") else None

Array = jax.Array
Work = dict[str, Callable[[], Any]]
PEERS = ("numpy", "torch", "faiss_ip", "faiss_l2", "sklearn")
NUM_CLASSES = 2
_DISTINCT = 1024
_LOGIT_SCALE = 2.0  # Standard deviation in nats: peaked distributions, like those of trained models.
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
    head = random_head(config)
    rows = [row for kind, anchors in sizes(settings, config) for row in _measure(settings, head, kind, anchors)]
    return {"model": settings.model, "distance": settings.distance, "queries_per_second": rows}


def sizes(settings: SearchSettings, config: config_lib.DecoderConfig) -> list[tuple[str, int]]:
    """Return the kinds of store that the model supports, each with the numbers of anchors of at most `max_store_gb`.

    Raises:
        UserError: no store is small enough.
    """
    found = []
    for kind in ("dense", "factored"):
        size = store_lib.anchor_bytes(StoreOptions(kind=kind), settings.distance, config, NUM_CLASSES)
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
    store = random_store(head, kind, settings.distance, anchors)
    distance = distances.get(settings.distance)
    keys = _affine(store.keys)
    rows_VE = head.rows_VE if distance.direction == "kl" or kind == "dense" else None
    for count in settings.queries:
        states = random_states(head, count, 2)
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
        turns = {name: machine.stopwatch(search) for name, search in work.items()}
        turns["operations"], operations = machine.matrix_products(jnp.float32)
        turns["bytes"], nbytes = memory_reads()
        settled = {name: _settled(turn) for name, turn in turns.items()}
        seconds = machine.medians(settled, settings.repetitions)
        found = work["from_keys"]().indices_Qk
        speeds = (operations / seconds["operations"], nbytes / seconds["bytes"])
        bound = bound_seconds(count, keys.vector.size, *speeds)
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


def memory_reads() -> tuple[machine.Turn, int]:
    """Return a turn of a product of a matrix and one vector, and its bytes: too many for any cache."""
    x_ND = jnp.ones((65536, 2048))
    return machine.stopwatch(functools.partial(_multiply, x_ND, x_ND[0])), x_ND.nbytes


_multiply = jax.jit(jnp.matmul)


def _settled(turn: machine.Turn) -> machine.Turn:
    """Return a turn after a pause, in which the threads of the previous library come to rest."""

    def settle_and_turn() -> float:
        time.sleep(peer_process.SETTLE_SECONDS)
        return turn()

    return settle_and_turn


def _labels(store: store_lib.Store, states: lm.States, k: int) -> np.ndarray:
    return search_lib.vote(store.search(states, k), NUM_CLASSES)[0]


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
        result = machine.describe() | run(FLAGS.value)
        device_report.publish(FLAGS.value.output, "search", FLAGS.value, result)

    FLAGS.run(main)
