"""Compare exact search with FAISS's inverted lists on the anchors of a saved classifier (the extra `faiss`).

python experiments/fit.py --rule=knn --task=trec --data_dir=data --restore_dropped --demo_shots=2 --store=stores/trec
python tools/compare_index.py stores/trec 4096 16384 65536 262144

Of the anchors, 256 drawn at random become queries. For more anchors than the rest, these are repeated with small noise. An
index of N anchors has 4 √N lists and reads the fewest, a power of two, that predict the same classes (k = 3).
"""

import sys
from collections.abc import Iterator
from typing import Any

import faiss
import jax
import jax.numpy as jnp
import numpy as np

import knnprompt_jax as kp
from knnprompt_jax import tables
from knnprompt_jax.benchmark import peer_process, timing
from knnprompt_jax.store import distances, kernel

K, QUERIES, NOISE, REPETITIONS = 3, 256, 0.1, 5
HEADERS = ("anchors", "queries", "exact, queries/s", "index, queries/s", "lists", "lists read", "recall")


def compare(folder: str, sizes: list[int]) -> Iterator[tuple[Any, ...]]:
    """Yield a row of `HEADERS` for each number of anchors and queries."""
    classifier, rng, forward = kp.load(folder), np.random.default_rng(0), distances.get("kl")
    store, states = classifier.store_, classifier.device_states()
    order = rng.permutation(len(store))
    drawn, rest = order[:QUERIES], order[QUERIES:]
    queries = store.codec.queries(states[drawn], forward)
    own = jax.tree.map(np.asarray, store.codec.references(store.unpadded.keys, forward))
    spread_W = NOISE * own.vector[rest].std(0)
    for count in sizes:
        places = rest[np.arange(count) % len(rest)]
        vectors_NW, classes_N = own.vector[places], store.labels_N[places].astype(np.int32)
        vectors_NW[len(rest) :] += spread_W * rng.standard_normal(vectors_NW[len(rest) :].shape, np.float32)
        yield from _measure(distances.Affine(vectors_NW, own.offset[places]), classes_N, queries)


def _measure(anchors: distances.Affine, classes_N: np.ndarray, queries: distances.Affine) -> Iterator[tuple[Any, ...]]:
    count, num_classes = len(classes_N), classes_N.max() + 1
    keys, labels_N = jax.tree.map(jnp.asarray, (anchors, classes_N))
    options = kernel.Options(K, distances.AFFINE, anchors_per_tile=min(count, 4096))
    exact = kernel.search(queries, keys, labels_N, options)
    places_Qk, (predicted_Q, _) = np.asarray(exact.indices_Qk), kernel.vote(exact, num_classes)
    keys_NW = np.column_stack([anchors.vector, -anchors.offset]).astype(np.float32)
    vectors_QW = np.column_stack([queries.vector, np.ones(QUERIES)]).astype(np.float32)
    lists = min(count, round(4 * count**0.5))
    index = faiss.index_factory(keys_NW.shape[1], f"IVF{lists},Flat", faiss.METRIC_INNER_PRODUCT)
    index.train(keys_NW)
    index.add(keys_NW)
    index.nprobe = 1
    while True:
        found_Qk = index.search(vectors_QW, K)[1]
        near = kernel.Neighbours(found_Qk, found_Qk, classes_N[found_Qk])
        if np.array_equal(kernel.vote(near, num_classes)[0], predicted_Q) or index.nprobe >= lists:
            break
        index.nprobe *= 2
    recall = np.mean([np.isin(*pair) for pair in zip(places_Qk, found_Qk, strict=True)])
    for number in (1, QUERIES):
        some = jax.tree.map(lambda leaf, number=number: leaf[:number], queries)
        turns = {
            "exact": timing.stopwatch(lambda some=some: kernel.search(some, keys, labels_N, options)),
            "index": timing.stopwatch(lambda number=number: index.search(vectors_QW[:number], K)),
        }
        seconds = timing.medians(turns, REPETITIONS, peer_process.SETTLE_SECONDS)
        rates = [f"{number / seconds[name]:,.0f}" for name in ("exact", "index")]
        yield f"{count:,}", number, *rates, lists, index.nprobe, f"{recall:.3f}"


if __name__ == "__main__":
    print(tables.render(HEADERS, [[*map(str, row)] for row in compare(sys.argv[1], [*map(int, sys.argv[2:])])]))
