"""Stores by kind and distance against float64, class means, errors, and searches in bounded memory."""

import dataclasses
import re
import types

import jax
import numpy as np
import pytest
from scipy import special

from knnprompt_jax.common import errors
from knnprompt_jax.datastore import StoreOptions, distances, rowwise, search_plan
from knnprompt_jax.datastore import search as search_lib
from knnprompt_jax.datastore import store as store_lib
from tests.datastore import worlds

USER_ERRORS = {
    "needs at least one anchor": lambda store, world: world.build("dense", "kl", rows=slice(0, 0)),
    "kind=sparse: choose from auto, dense, factored": lambda store, world: world.build("sparse", "kl"),
    "distance='bag': choose from kl, reverse_kl": lambda store, world: world.build("auto", "bag"),
    "k=0: choose from 1 to 211": lambda store, world: world.search(store, 0),
    "k=212: choose from 1 to 211": lambda store, world: world.search(store, 212),
    "memory_mb=1: this search needs about 3.7 MiB": lambda store, world: world.search(
        world.build("dense", "kl", memory_mb=1.0), 1
    ),
}


@pytest.mark.parametrize("message", USER_ERRORS)
def test_user_errors(world, message):
    store = world.build("factored", "kl")
    with pytest.raises(errors.UserError, match=re.escape(message)):
        USER_ERRORS[message](store, world)


@pytest.mark.parametrize("kind", ["auto", "dense", "factored"])
@pytest.mark.parametrize("distance", ["kl_labels", "reverse_kl_labels", "l2"])
def test_small_representations_are_kept_as_they_are(world, kind, distance):
    store = world.build(kind, distance)
    np.testing.assert_allclose(world.all_distances(store), world.distances(distance), atol=1e-4, rtol=1e-5)
    worlds.check_ranks(world.search(store, 3).indices_Qk, world.distances(distance))
    assert rowwise.row_bytes(store.keys) == 4 * (worlds.WIDTH if distance == "l2" else 1 + len(worlds.LABEL_TOKENS))


@pytest.mark.parametrize("distance", distances.DISTANCES)
@pytest.mark.parametrize("kind", ["dense", "factored"])
def test_the_size_of_an_anchor_is_known_before_there_is_one(world, kind, distance):
    store = world.build(kind, distance, rows=slice(0, 7))
    config = types.SimpleNamespace(vocab_size=worlds.VOCABULARY, state_width=worlds.WIDTH)
    found = store_lib.anchor_bytes(StoreOptions(kind), distance, config, len(worlds.LABEL_TOKENS))
    assert found == rowwise.row_bytes(store.keys)
    assert store.num_bytes == 7 * (found + 4)


def test_ids_are_those_given(world):
    store = world.build("factored", "kl", rows=slice(0, 5), ids=[7, 3, 9, 1, 2])
    assert store.ids_N.tolist() == [7, 3, 9, 1, 2]
    np.testing.assert_array_equal(store.classes_N, world.classes_N[:5])
    nearest = store.search(world.queries.take_replicated(slice(0)), 3)
    assert nearest.indices_Qk.shape == nearest.classes_Qk.shape == (0, 3), "no queries"


@pytest.mark.parametrize("distance", distances.DISTANCES)
@pytest.mark.parametrize("kind", ["dense", "factored"])
def test_all_distances_are_those_of_a_search_and_none_is_negative(world, kind, distance):
    """Rounding makes the divergence between equal states negative."""
    store = world.build(kind, distance)
    near = store.search(world.anchors, 1)
    np.testing.assert_allclose(near.distances_Qk, 0, atol=2e-2 if distance == "l2" else 1e-4)
    assert (np.asarray(near.distances_Qk) >= 0).all()
    assert (store.distances(world.anchors) >= 0).all()
    np.testing.assert_allclose(store.distances(world.queries), world.all_distances(store), atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "distance"), [("dense", "reverse_kl"), ("dense", "kl"), ("factored", "kl"), ("dense", "l2")]
)
@pytest.mark.parametrize(("num_queries", "memory_mb"), [(1, 16), (300, 16)])
def test_compiled_programs_take_the_planned_memory(world, kind, distance, num_queries, memory_mb):
    """XLA's memory besides anchors, head and result exceeds neither the plan nor `memory_mb` by more than 10 %."""
    store = world.build(kind, distance, rows=slice(0, 8))

    def abstract(tree, count):
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape[1:]), leaf.dtype), tree)

    keys = abstract(store.keys, 20_011)
    sizes = search_plan.choose(store.codec, keys, num_queries, 3, memory_mb * 2**20)
    queries = jax.eval_shape(store.codec.encode_queries, abstract(world.queries, sizes.queries_per_block))
    assert rowwise.row_bytes(queries) == rowwise.row_bytes(keys), "the plan takes queries to be as large as keys"
    classes_M = abstract(store.classes_M, 20_011)
    compiled = search_lib.search_compiled.lower(queries, keys, classes_M, sizes.options, None, None).compile()
    required = compiled.memory_analysis().temp_size_in_bytes + sizes.queries_per_block * rowwise.row_bytes(queries)
    assert required <= 1.1 * sizes.num_bytes <= 1.1 * memory_mb * 2**20


@pytest.mark.parametrize("direction", distances.DIRECTIONS)
def test_the_kind_changes_no_prediction(decoded, direction):
    """For states of a real pass, where float64 tells the k-th anchor from the next by more than float32 mistakes."""
    sorted_QN = np.sort(worlds.divergences(direction, decoded.logp_QV, decoded.logp_NV))
    dense, factored = (
        store_lib.build(StoreOptions(kind), direction, decoded.head, decoded.anchors, decoded.y_N, decoded.label_tokens)
        for kind in ("dense", "factored")
    )
    for k in (1, 3):
        certain_Q = sorted_QN[:, k] - sorted_QN[:, k - 1] > worlds.MARGIN
        assert certain_Q.mean() > 0.5
        expected_Q, _ = search_lib.vote(dense.search(decoded.queries, k), 4)
        predicted_Q, _ = search_lib.vote(factored.search(decoded.queries, k), 4)
        assert len(set(expected_Q[certain_Q].tolist())) > 1
        np.testing.assert_array_equal(predicted_Q[certain_Q], expected_Q[certain_Q])


CLASSES = (0, 1, 4)  # Classes 2 and 3 have no anchor.


@pytest.fixture(scope="module")
def sparse(world):
    """A world with as many anchors as a block has, and some more."""
    return dataclasses.replace(world, classes_N=np.random.default_rng(0).choice(CLASSES, 211, p=[0.2, 0.5, 0.3]))


def compared(logp_NV, distance):
    return special.log_softmax(logp_NV[:, worlds.LABEL_TOKENS], axis=-1) if distance.endswith("labels") else logp_NV


def definition(world, kind, distance):
    """Return the logarithms [C, W] of the class means in float64."""
    logk_NW = compared(world.logk_NV, distance)
    members = [logk_NW[world.classes_N == label] for label in CLASSES]
    if kind == "arithmetic":
        return np.stack([special.logsumexp(logk_nW, axis=0) - np.log(len(logk_nW)) for logk_nW in members])
    return special.log_softmax(np.stack([logk_nW.mean(0) for logk_nW in members]), axis=-1)


@pytest.mark.parametrize("distance", ["kl", "reverse_kl_labels"])
@pytest.mark.parametrize("kind", ("arithmetic", "geometric"))
def test_class_means_are_those_of_the_definition(sparse, kind, distance):
    want_CW = definition(sparse, kind, distance)
    store = sparse.build("auto", distance, centroid=kind)
    keys_CW = np.asarray(store.keys.vector)  # Probabilities if the anchor weights the terms, otherwise logarithms.
    np.testing.assert_allclose(np.log(keys_CW) if distance.startswith("reverse") else keys_CW, want_CW, atol=1e-4)
    np.testing.assert_array_equal(store.classes_N, CLASSES)
    direction = "reverse_kl" if distance.startswith("reverse") else "kl"
    want_QC = worlds.divergences(direction, compared(sparse.logp_QV, distance), want_CW)
    nearest = sparse.search(store, 1)
    worlds.check_ranks(nearest.indices_Qk, want_QC)
    np.testing.assert_array_equal(nearest.classes_Qk, np.array(CLASSES)[nearest.indices_Qk])
