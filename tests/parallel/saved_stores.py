"""Check on 8 forced CPU devices that a classifier saved from one mesh loads onto another."""

import pathlib
import tempfile

import jax
import numpy as np
from jax.sharding import Mesh

import knnprompt_jax as kp
from knnprompt_jax.common import parallel
from knnprompt_jax.datastore import StoreOptions
from knnprompt_jax.datastore import store as store_lib

TEXTS = [
    f"{subject} {verb}" for subject in ("a dog", "the cat", "who", "it") for verb in ("runs", "is it", "may", "so")
]
LABELS = ["said", "asked", "asked", "said"] * 4
MESHES = {"8x1": (8, 1), "2x4": (2, 4), "1x2": (1, 2)}


def check_shards(store: store_lib.Store, mesh: Mesh | None) -> None:
    """Check that every device has an equal share of the rows, in their order, and no more."""
    size = mesh.size if mesh else 1
    share = -(-len(store) // size)
    for array in jax.tree.leaves((store.keys, store.classes_M)):
        starts = sorted(shard.index[0].start or 0 for shard in array.addressable_shards)
        assert starts == list(range(0, share * size, share)), (array.sharding, starts)
        assert {len(shard.data) for shard in array.addressable_shards} == {share}


def check(kind: str, path: pathlib.Path) -> None:
    options = StoreOptions(kind)
    model = kp.LanguageModel.from_pretrained("tiny", mesh=parallel.make_mesh(1, 2))
    fitted = kp.KNNPrompting(model, demo_shots=1, store_options=options).fit(TEXTS[:-1], LABELS[:-1])
    fitted.save(path)
    distances, ids = fitted.kneighbors(TEXTS, 5)
    for name, sizes in MESHES.items():
        mesh = parallel.make_mesh(*sizes)
        loaded = kp.load(path, mesh=mesh)
        check_shards(loaded.fitted_.store, mesh)
        assert loaded.fitted_.store.mesh == mesh
        found = loaded.kneighbors(TEXTS, 5)
        np.testing.assert_array_equal(found[1], ids)
        np.testing.assert_allclose(found[0], distances, atol=1e-4)
        print(kind, name)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        for kind in ("factored", "dense"):
            check(kind, pathlib.Path(name, kind))
