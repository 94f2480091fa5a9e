"""Check on 8 forced CPU devices that a store written from one mesh loads onto another, and into host memory."""

import pathlib
import tempfile

import jax
import numpy as np
from jax.sharding import Mesh

from knnprompt_jax import lm, parallel
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.settings import stores
from knnprompt_jax.store import manifest, search, storage
from knnprompt_jax.store import store as store_lib
from tests.store import worlds

NUM_ANCHORS, VOCABULARY, WIDTH = 19, 101, 13  # Neither eight nor four divides the anchors.
MESHES = {"1x1": None, "8x1": (8, 1), "2x4": (2, 4), "1x2": (1, 2)}
PROVENANCE = manifest.Provenance(
    **{"model": "m", "fingerprint": "f", "dtype": "float32", "task": "random", "template": "{x}"},
    **{"labels": ("a", "b", "c"), "label_words": ("a", "b", "c"), "label_ids": (5, 7, 11)},
    **{"demonstrations": "d", "num_demonstrations": 1, "deterministic": False},
    **{"truncation": "left", "label_token": "last", "context": 59},
)


def make_mesh(name: str) -> Mesh | None:
    return parallel.make_mesh(*MESHES[name]) if MESHES[name] else None


def make_states(count: int, seed: int) -> lm.States:
    rng = np.random.default_rng(seed)
    return lm.States(*(2 * rng.normal(size=size).astype(np.float32) for size in ((count, WIDTH), count)))


def check_places(store: store_lib.Store, mesh: Mesh | None) -> None:
    """Check that every device has an equal share of the rows, in their order, and no more."""
    size = mesh.size if mesh else 1
    share = -(-NUM_ANCHORS // size)
    for array in jax.tree.leaves(store.anchors):
        starts = sorted(shard.index[0].start or 0 for shard in array.addressable_shards)
        assert starts == list(range(0, share * size, share)), (array.sharding, starts)
        assert {len(shard.data) for shard in array.addressable_shards} == {share}


def write(folder: pathlib.Path, store: store_lib.Store) -> manifest.Manifest:
    """Write the store's arrays and manifest; return the manifest as read back."""
    folder.mkdir()
    arrays = storage.arrays_of(store)
    storage.write(folder, arrays)
    codec = store.codec
    manifest.write(folder, manifest.Manifest(PROVENANCE, codec.kind, codec.options, {}, arrays, {}))
    return manifest.read(folder)


def check(kind: str, source: str, targets: list[str], folder: pathlib.Path) -> None:
    rows_VE = np.random.default_rng(0).normal(size=(VOCABULARY, WIDTH)).astype(np.float32)
    head = head_lib.Head(rows_VE)
    states, y = make_states(NUM_ANCHORS, 1), np.arange(NUM_ANCHORS) % 3
    store = store_lib.build(stores.StoreOptions(kind), "", head, states, y, PROVENANCE.label_ids)
    store = worlds.placed(store, make_mesh(source))
    check_places(store, make_mesh(source))
    written = write(folder, store)
    queries = make_states(7, 2)
    want = store.search(queries, search.SearchOptions(5))
    for target in [*targets, "host"]:
        mesh = None if target == "host" else make_mesh(target)
        options = stores.StoreOptions(placement="host" if target == "host" else "device")
        loaded = storage.load(folder, written, head, mesh, options)
        if target != "host":
            check_places(loaded, mesh)
        ours, theirs = (jax.tree.map(np.asarray, each.unpadded) for each in (loaded, store))
        jax.tree.map(np.testing.assert_array_equal, ours, theirs)
        np.testing.assert_array_equal(loaded.ids_N, store.ids_N)
        nearest = loaded.search(queries, search.SearchOptions(5))
        np.testing.assert_array_equal(nearest.indices_Qk, want.indices_Qk)
        np.testing.assert_allclose(nearest.distances_Qk, want.distances_Qk, atol=1e-4)
    print(kind, source, "to", *targets)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        check("factored", "8x1", ["1x1", "2x4", "1x2"], folder / "a")
        check("dense", "2x4", ["1x1", "8x1"], folder / "b")
