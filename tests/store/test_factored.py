"""The factored store against float64: divergences, neighbours, and all that reads the same states."""

import jax
import numpy as np
import pytest

from knnprompt_jax import errors
from knnprompt_jax.store import centroids, stores

LABEL_IDS = (3, 4998, 7, 11, 13)
MARGIN = 2e-4  # Nats: float32 may mistake neighbours that are closer to each other.
WORST = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-1}  # Nats, by key_dtype.


@pytest.fixture(scope="module")
def store(world):
    return stores.build("factored", world.head, world.anchors, world.labels_N, LABEL_IDS, released=True)


@pytest.fixture(scope="module")
def dense_store(world):
    return stores.build("dense", world.head, world.anchors, world.labels_N, LABEL_IDS)


def all_distances(store, states, direction, representation="distribution"):
    found = store.search(states, len(store), direction, representation)
    distances_QN = np.empty(found.distances_Qk.shape)
    np.put_along_axis(distances_QN, np.asarray(found.indices_Qk), np.asarray(found.distances_Qk, np.float64), -1)
    return distances_QN


def check_neighbours(indices_Qk, want_QN):
    """The same set of neighbours wherever the k-th and the next are further apart than the margin."""
    k = indices_Qk.shape[1]
    order_QN = want_QN.argsort(-1)
    sorted_QN = np.take_along_axis(want_QN, order_QN, -1)
    certain_Q = sorted_QN[:, k] - sorted_QN[:, k - 1] > MARGIN
    assert certain_Q.mean() > 0.9, "too few neighbours are certain for this to test anything"
    np.testing.assert_array_equal(np.sort(indices_Qk)[certain_Q], np.sort(order_QN[:, :k])[certain_Q])


@pytest.mark.parametrize("key_dtype", WORST)
@pytest.mark.parametrize("direction", ["forward", "released"])
def test_distances_are_the_divergences(world, direction, key_dtype):
    options = {"released": True, "key_dtype": key_dtype}
    store = stores.build("factored", world.head, world.anchors, world.labels_N, LABEL_IDS, **options)
    want_QN = world.divergences(direction)
    got_QN = all_distances(store, world.queries, direction)
    np.testing.assert_allclose(got_QN, want_QN, atol=WORST[key_dtype], rtol=0)
    if key_dtype == "float32":
        check_neighbours(np.asarray(store.search(world.queries, 3, direction).indices_Qk), want_QN)


@pytest.mark.parametrize("direction", ["forward", "released"])
def test_it_is_more_exact_than_the_dense_store(world, store, dense_store, direction):
    want_QN = world.divergences(direction)
    errors_of = [abs(all_distances(each, world.queries, direction) - want_QN).max() for each in (store, dense_store)]
    assert errors_of[0] < errors_of[1] / 2


@pytest.mark.parametrize("direction", ["forward", "released"])
def test_appended_anchors_far_from_the_centre_are_as_good(world, direction):
    """The centre is that of one class's anchors; all others come later."""
    first_n, later_n = np.flatnonzero(world.labels_N == 0), np.flatnonzero(world.labels_N != 0)
    first, later = world.anchors[first_n], world.anchors[later_n]
    store = stores.build("factored", world.head, first, world.labels_N[first_n], LABEL_IDS, released=True)
    keys = np.asarray(store.anchors.keys.hidden_NE)
    store = store.append(later, world.labels_N[later_n])
    np.testing.assert_array_equal(np.asarray(store.anchors.keys.hidden_NE)[: len(first_n)], keys)
    want_QN = world.divergences(direction)[:, np.concatenate([first_n, later_n])]
    np.testing.assert_allclose(all_distances(store, world.queries, direction), want_QN, atol=1e-4, rtol=0)


@pytest.mark.parametrize("direction", ["forward", "released"])
@pytest.mark.parametrize("representation", ["partial", "partial_raw"])
def test_label_words_are_read_from_the_same_states(world, store, dense_store, representation, direction):
    logp_QC, logk_NC = world.logp_QV[:, LABEL_IDS], world.logk_NV[:, LABEL_IDS]
    if representation == "partial":
        logp_QC, logk_NC = (x - np.log(np.exp(x).sum(-1, keepdims=True)) for x in (logp_QC, logk_NC))
    first, second = (logp_QC[:, None], logk_NC) if direction == "forward" else (logk_NC, logp_QC[:, None])
    want_QN = (np.exp(first) * (first - second)).sum(-1)
    for each in (store, dense_store):
        got_QN = all_distances(each, world.queries, direction, representation)
        np.testing.assert_allclose(got_QN, want_QN, atol=1e-4, rtol=1e-5)


def test_hidden_states_are_compared_as_they_are(world, store):
    queries_QE, anchors_NE = (np.asarray(part.hidden_NE, np.float64) for part in (world.queries, world.anchors))
    want_QN = np.linalg.norm(queries_QE[:, None] - anchors_NE, axis=-1)
    np.testing.assert_allclose(all_distances(store, world.queries, "forward", "hidden"), want_QN, rtol=1e-5)


@pytest.mark.parametrize("kind", ["arithmetic", "geometric"])
@pytest.mark.parametrize("representation", ["distribution", "partial"])
def test_centroids_are_those_of_the_definition(world, store, kind, representation):
    logk_NV = world.logk_NV if representation == "distribution" else world.logk_NV[:, LABEL_IDS]
    logk_NV = logk_NV - np.log(np.exp(logk_NV).sum(-1, keepdims=True))
    members = [logk_NV[world.labels_N == label] for label in range(5)]
    if kind == "arithmetic":
        want_CV = np.stack([np.log(np.exp(rows_NV).mean(0)) for rows_NV in members])
    else:
        mean_CV = np.stack([rows_NV.mean(0) for rows_NV in members])
        want_CV = mean_CV - np.log(np.exp(mean_CV).sum(-1, keepdims=True))
    got = centroids.of(store, kind, world.head, representation)
    np.testing.assert_allclose(got.anchors.keys.values_NV, want_CV, atol=5e-5, rtol=0)
    found = got.search(world.queries, 1, "forward", representation)
    logp_QV = world.logp_QV if representation == "distribution" else world.logp_QV[:, LABEL_IDS]
    logp_QV = logp_QV - np.log(np.exp(logp_QV).sum(-1, keepdims=True))
    want_QC = (np.exp(logp_QV)[:, None] * (logp_QV[:, None] - want_CV)).sum(-1)
    np.testing.assert_array_equal(found.labels_Qk[:, 0], want_QC.argmin(-1))


def test_memory_of_an_anchor(world, store, dense_store):
    vocabulary, width = world.head.rows_VE.shape
    forward = stores.build("factored", world.head, world.anchors, world.labels_N, LABEL_IDS)
    assert dense_store.bytes_per_anchor == 4 * vocabulary
    assert forward.bytes_per_anchor == 4 * (width + 1)
    assert store.bytes_per_anchor == 8 * (width + 1)
    assert forward.nbytes == len(forward) * (4 * (width + 1) + 4)


def test_released_queries_cost_nothing_over_the_vocabulary(world, store):
    """The compiled program has no array of V in it but the head itself."""
    text = (
        jax.jit(lambda states: store.codec.queries(states, "distribution", "released")).lower(world.queries).as_text()
    )
    assert not [line for line in text.splitlines() if "4999" in line and "dot_general" in line]
    text = jax.jit(lambda states: store.codec.queries(states, "distribution", "forward")).lower(world.queries).as_text()
    assert [line for line in text.splitlines() if "4999" in line and "dot_general" in line]


def test_the_released_direction_must_be_kept(world):
    store = stores.build("factored", world.head, world.anchors, world.labels_N, LABEL_IDS)
    with pytest.raises(errors.UserError, match="direction='released': this factored store was made without it"):
        store.search(world.queries, 3, "released")


def test_states_beyond_float16_are_refused(world):
    far = world.anchors.replace(hidden_NE=world.anchors.hidden_NE.at[7, 3].set(1e6))
    with pytest.raises(errors.UserError, match="key_dtype='float16': some states exceed its range"):
        stores.build("factored", world.head, far, world.labels_N, LABEL_IDS, key_dtype="float16")
