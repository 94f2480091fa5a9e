"""What a dense store keeps, and the errors of stores."""

import re

import jax
import pytest

from knnprompt_jax import errors
from knnprompt_jax.settings import stores
from knnprompt_jax.store import search
from knnprompt_jax.store import store as store_lib
from tests.store import worlds

USER_ERRORS = {
    "needs at least one anchor": lambda store, world: world.build("dense", rows=slice(0, 0)),
    "kind='sparse': choose from auto, dense, factored": lambda store, world: world.build("sparse"),
    "key_dtype='int8': choose from float32": lambda store, world: world.build("dense", key_dtype="int8"),
    "distance='bag': choose from kl, reverse_kl": lambda store, world: world.build("auto", "bag"),
    "k=0: choose from 1 to 211": lambda store, world: world.search(store, 0),
    "k=212: choose from 1 to 211": lambda store, world: world.search(store, 212),
    "distance='backward': choose from kl, reverse_kl": lambda store, world: world.search(store, 1, "backward"),
    "approximate_recall=1.5: choose a probability": lambda store, world: roughly(store, world, 1.5),
    "approximate_recall=0.0: choose a probability": lambda store, world: roughly(store, world, 0.0),
    "memory_mb=1: this search needs more than": lambda store, world: world.search(
        world.build("dense", memory_mb=1.0), 1
    ),
}


def roughly(store, world, recall):
    store.search(world.queries, search.SearchOptions(1, approximate_recall=recall))


@pytest.mark.parametrize("message", USER_ERRORS)
def test_user_errors(world, message):
    store = world.build("factored")
    with pytest.raises(errors.UserError, match=re.escape(message)):
        USER_ERRORS[message](store, world)


@pytest.mark.parametrize("built_for, others", [("l2", ()), ("kl_labels", ("reverse_kl_labels",))])
def test_a_dense_store_keeps_what_its_distance_compares(world, built_for, others):
    store = world.build("dense", built_for)
    assert store.distances == (built_for, *others)
    worlds.check_ranks(world.search(store, 3, built_for).indices_Qk, world.distances(built_for))
    with pytest.raises(errors.UserError, match=f"distance='kl': choose from {built_for}"):
        world.search(store, 3)


def test_host_memory_is_for_a_single_process(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    store_lib.check_processes(stores.StoreOptions())
    with pytest.raises(errors.UserError, match="placement='host' is for a single process"):
        store_lib.check_processes(stores.StoreOptions(placement="host"))
