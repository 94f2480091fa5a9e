"""Run on 8 forced CPU devices: a store saved from one mesh is loaded onto another, straight to where its anchors belong."""

import pathlib
import tempfile

import jax
import numpy as np
from jax.sharding import Mesh

from knnprompt_jax import lm, parallel
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.store import manifest, storage, stores

NUM_ANCHORS, VOCABULARY, WIDTH = 19, 101, 13  # Neither eight nor four divides the anchors.
MESHES = {"1x1": None, "8x1": (8, 1), "1x8": (1, 8), "2x4": (2, 4), "1x2": (1, 2)}
PROVENANCE = manifest.Provenance(
    **{"model": "m", "fingerprint": "f", "tokenizer": "t", "dtype": "float32", "task": "random", "template": "{x}"},
    **{"labels": ("a", "b", "c"), "label_words": ("a", "b", "c"), "label_ids": (5, 7, 11)},
    **{"demonstrations": "d", "num_demonstrations": 1, "truncation": "left"},
)


def make_mesh(name: str) -> Mesh | None:
    return parallel.make_mesh(*MESHES[name]) if MESHES[name] else None


def make_states(count: int, seed: int) -> lm.States:
    rng = np.random.default_rng(seed)
    return lm.States(*(2 * rng.normal(size=size).astype(np.float32) for size in ((count, WIDTH), count)))


def check_places(store: stores.Store, mesh: Mesh | None) -> None:
    """Every device has an equal share of the rows, in their order, and no more."""
    size = mesh.size if mesh else 1
    share = -(-NUM_ANCHORS // size)
    for array in jax.tree.leaves(store.anchors):
        starts = sorted(shard.index[0].start or 0 for shard in array.addressable_shards)
        assert starts == list(range(0, share * size, share)), (array.sharding, starts)
        assert {len(shard.data) for shard in array.addressable_shards} == {share}


def check(kind: str, source: str, targets: list[str], folder: pathlib.Path) -> None:
    rows_VE = np.random.default_rng(0).normal(size=(VOCABULARY, WIDTH)).astype(np.float32)
    head = head_lib.Head(rows_VE)
    store = stores.build(kind, head, make_states(NUM_ANCHORS, 1), np.arange(NUM_ANCHORS) % 3, PROVENANCE.label_ids)
    store = store.on_device(make_mesh(source))
    check_places(store, make_mesh(source))
    storage.save(folder, store, PROVENANCE)
    queries = make_states(7, 2)
    want = store.search(queries, 5)
    for target in [*targets, "host"]:
        mesh = None if target == "host" else make_mesh(target)
        loaded = storage.open_folder(folder, PROVENANCE).load(head, mesh=mesh, on_host=target == "host")
        if target != "host":
            check_places(loaded, mesh)
        ours, theirs = (jax.tree.map(np.asarray, one.unpadded) for one in (loaded, store))
        jax.tree.map(np.testing.assert_array_equal, ours, theirs)
        np.testing.assert_array_equal(loaded.ids_N, store.ids_N)
        found = loaded.search(queries, 5)
        np.testing.assert_array_equal(found.indices_Qk, want.indices_Qk)
        np.testing.assert_allclose(found.distances_Qk, want.distances_Qk, atol=1e-4)
        grown = loaded.append(make_states(3, 3), [0, 1, 2])
        everything = grown.search(queries, NUM_ANCHORS + 3)
        np.testing.assert_array_equal(np.sort(everything.indices_Qk), [range(NUM_ANCHORS + 3)] * len(queries))
    print(kind, source, "to", *targets)


if __name__ == "__main__":
    assert jax.device_count() == 8
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        check("factored", "8x1", ["1x1", "2x4", "1x2"], folder / "a")
        check("factored", "1x1", ["1x8", "2x4"], folder / "b")
        check("dense", "2x4", ["1x1", "8x1"], folder / "c")
