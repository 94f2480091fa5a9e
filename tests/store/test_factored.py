"""The factored store against float64: divergences, neighbours, and all that reads the same states."""

import dataclasses

import numpy as np
import pytest

from knnprompt_jax import errors
from knnprompt_jax.settings import stores
from knnprompt_jax.store import kernel, search
from knnprompt_jax.store import store as store_lib
from tests.store import worlds

WORST = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-1}  # Nats, by key_dtype.
DIRECTIONS = pytest.mark.parametrize("direction", stores.DIRECTIONS)


@pytest.fixture(scope="module")
def store(world):
    return world.build("factored")


@pytest.fixture(scope="module")
def dense_store(world):
    return world.build("dense")


@pytest.mark.parametrize("key_dtype", WORST)
@DIRECTIONS
def test_distances_are_the_divergences(world, direction, key_dtype):
    store = world.build("factored", direction, key_dtype=key_dtype)
    want_QN = world.distances(direction)
    np.testing.assert_allclose(world.all_distances(store, direction), want_QN, atol=WORST[key_dtype], rtol=0)
    if key_dtype == "float32":
        worlds.check_ranks(world.search(store, 3, direction).indices_Qk, want_QN, least=0.9)


@pytest.mark.parametrize("distance", ["kl_labels", "reverse_kl_labels", "l2"])
def test_label_words_and_states_are_read_from_the_same_anchors(world, store, dense_store, distance):
    for each in (store, dense_store) if distance != "l2" else (store,):
        got_QN = world.all_distances(each, distance)
        np.testing.assert_allclose(got_QN, world.distances(distance), atol=1e-4, rtol=1e-5)


@DIRECTIONS
def test_neither_kind_nor_place_changes_a_prediction(decoded, direction):
    """For states of a real pass, where float64 tells the k-th anchor from the next by more than float32 mistakes."""
    sorted_QN = np.sort(worlds.divergences(direction, decoded.logp_QV, decoded.logp_NV))
    built = [
        store_lib.build(options, direction, decoded.head, decoded.anchors, decoded.y_N, decoded.label_ids)
        for options in (
            stores.StoreOptions("dense"),
            stores.StoreOptions(),
            stores.StoreOptions(placement="host"),
        )
    ]
    for k in (1, 3):
        certain_Q = sorted_QN[:, k] - sorted_QN[:, k - 1] > worlds.MARGIN
        assert certain_Q.mean() > 0.5
        nearest = [store.search(decoded.queries, search.SearchOptions(k, direction)) for store in built]
        dense, *factored = [kernel.vote(each, 4)[0][certain_Q] for each in nearest]
        assert len(set(dense.tolist())) > 1
        for predicted in factored:
            np.testing.assert_array_equal(predicted, dense)


def test_the_released_direction_must_be_kept(world):
    with pytest.raises(errors.UserError, match="distance='reverse_kl': choose from kl, kl_labels, .*this store"):
        world.search(world.build("factored", "kl"), 3, "reverse_kl")


@pytest.mark.parametrize(("kind", "distance"), [("factored", "kl"), ("dense", "l2")])
def test_states_beyond_float16_are_refused(world, kind, distance):
    far = world.anchors.replace(hidden_NE=world.anchors.hidden_NE.at[7, 3].set(1e6))
    with pytest.raises(errors.UserError, match="key_dtype='float16': some states exceed its range"):
        dataclasses.replace(world, anchors=far).build(kind, distance, key_dtype="float16")
