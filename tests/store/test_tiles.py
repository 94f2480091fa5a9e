"""Tiles change no result and stay within their memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from knnprompt_jax import errors
from knnprompt_jax.store import distances, kernel

NUM_ANCHORS, NUM_QUERIES, WIDTH = 211, 23, 101
FORWARD, HIDDEN = distances.get("forward"), distances.get("hidden")
ALL = [pytest.param(each, id=each.name) for each in (FORWARD, distances.get("released"), HIDDEN, distances.AFFINE)]


def rows(count, seed):
    return jax.nn.log_softmax(3 * jax.random.normal(jax.random.key(seed), (count, WIDTH)))


def arguments(distance):
    queries, keys = rows(NUM_QUERIES, 0), rows(NUM_ANCHORS, 1)
    if distance is distances.AFFINE:
        queries, keys = (distances.Affine(each, each.sum(-1)) for each in (queries, keys))
    return queries, keys, jnp.arange(NUM_ANCHORS) % 7


@pytest.mark.parametrize("tile_bytes, k", [(5_000, NUM_ANCHORS), (60_000, 3)])
@pytest.mark.parametrize("distance", ALL)
def test_tiles_change_no_result(distance, tile_bytes, k):
    queries, keys, labels_N = arguments(distance)
    assert kernel.plan_tiles(queries, keys, distance, tile_bytes).anchors < NUM_ANCHORS
    whole = kernel.search(queries, keys, labels_N, k=k, distance=distance)
    tiled = kernel.search(queries, keys, labels_N, k=k, distance=distance, tile_bytes=tile_bytes)
    np.testing.assert_allclose(tiled.distances_Qk, whole.distances_Qk, rtol=1e-6, atol=1e-4)
    np.testing.assert_array_equal(tiled.labels_Qk, np.asarray(labels_N)[tiled.indices_Qk])
    gaps_Qk = np.diff(np.asarray(whole.distances_Qk), prepend=-1e9, append=1e9)
    margin_Qk = 1e-4 + 1e-6 * np.abs(whole.distances_Qk)
    certain_Qk = np.minimum(gaps_Qk[:, :-1], gaps_Qk[:, 1:]) > margin_Qk
    assert certain_Qk.mean() > 0.9
    np.testing.assert_array_equal(np.asarray(tiled.indices_Qk)[certain_Qk], np.asarray(whole.indices_Qk)[certain_Qk])


@pytest.mark.parametrize("tile_bytes", [900, 10_000])
def test_ties_in_different_tiles_take_the_lower_index(tile_bytes):
    """Distances are whole numbers, exact in any order of summation."""
    rng = np.random.default_rng(5)
    queries_QE, keys_NE = (rng.integers(0, 3, (count, 2)).astype(np.float32) for count in (13, NUM_ANCHORS))
    found = kernel.search(queries_QE, keys_NE, np.arange(NUM_ANCHORS), k=50, distance=HIDDEN, tile_bytes=tile_bytes)
    distances_QN = np.linalg.norm(queries_QE[:, None] - keys_NE, axis=-1)
    np.testing.assert_array_equal(found.indices_Qk, np.argsort(distances_QN, -1, kind="stable")[:, :50])


def test_padding_is_never_found():
    queries, keys, labels_N = arguments(HIDDEN)
    labels_N = jnp.where(jnp.arange(NUM_ANCHORS) % 3 == 0, -1, labels_N)
    real = int((labels_N >= 0).sum())
    found = kernel.search(queries, keys, labels_N, k=real, distance=HIDDEN, tile_bytes=10_000)
    np.testing.assert_array_equal(np.sort(found.indices_Qk), np.tile(np.flatnonzero(labels_N >= 0), (NUM_QUERIES, 1)))


@pytest.mark.parametrize(
    "tile_bytes, dtype", [(100_000, jnp.float32), (100_000, jnp.bfloat16), (100_000_000, jnp.bfloat16)]
)
@pytest.mark.parametrize("distance", ALL[1::2])
def test_compiled_memory_is_within_the_plan(distance, tile_bytes, dtype):
    def shaped(count, dtype):
        vector, offset = jax.ShapeDtypeStruct((count, 503), dtype), jax.ShapeDtypeStruct((count,), jnp.float32)
        return distances.Affine(vector, offset) if distance is distances.AFFINE else vector

    queries, keys = shaped(300, jnp.float32), shaped(4099, dtype)
    options = {"k": 3, "distance": distance, "tile_bytes": tile_bytes, "approximate_recall": None}
    compiled = kernel._search.lower(queries, keys, jax.ShapeDtypeStruct((4099,), jnp.int32), **options).compile()
    planned = kernel.plan_tiles(queries, keys, distance, tile_bytes).nbytes
    assert planned <= tile_bytes
    queries_result_and_labels = 4 * 300 * 503 + 300 * 3 * 4 * 8 + 4 * 4099
    assert compiled.memory_analysis().temp_size_in_bytes <= planned + queries_result_and_labels


def test_too_little_memory_is_refused():
    queries, keys, labels_N = arguments(FORWARD)
    with pytest.raises(errors.UserError, match="search memory of 999 bytes: at least .* are needed"):
        kernel.search(queries, keys, labels_N, k=3, distance=FORWARD, tile_bytes=999)


def test_approximate_search_is_exact_off_tpu(monkeypatch):
    queries, keys, labels_N = arguments(FORWARD)
    recalls, approx_max_k = [], jax.lax.approx_max_k

    def recorded(nearness_n, k, recall_target):
        recalls.append(recall_target)
        return approx_max_k(nearness_n, k, recall_target=recall_target)

    monkeypatch.setattr(jax.lax, "approx_max_k", recorded)
    exact = kernel.search(queries, keys, labels_N, k=3, distance=FORWARD)
    assert not recalls
    near = kernel.search(queries, keys, labels_N, k=3, distance=FORWARD, approximate_recall=0.9, tile_bytes=50_000)
    assert set(recalls) == {0.9}
    agreement = np.mean(np.asarray(near.indices_Qk) == np.asarray(exact.indices_Qk))
    assert agreement == 1 if jax.default_backend() != "tpu" else agreement > 0.8
