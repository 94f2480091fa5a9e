"""Print, for every mesh of 4 forced CPU devices, digests of states and of the distances between them."""

import dataclasses
import hashlib

import jax
import numpy as np

from knnprompt_jax import lm, parallel
from knnprompt_jax import states as states_lib
from knnprompt_jax.settings import stores
from knnprompt_jax.store import search
from knnprompt_jax.store import store as store_lib
from tests.parallel import small

MESHES = [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2)]
NUM_ANCHORS = 19


def digest(tree: object) -> str:
    """Return the SHA-256 of the bits of arrays."""
    whole = hashlib.sha256()
    for leaf in jax.tree.leaves(parallel.replicate(tree)):
        whole.update(np.asarray(leaf).tobytes())
    return whole.hexdigest()[:16]


def near(model: lm.LanguageModel, states: lm.States, kind: str) -> str:
    """Return digests of every query's neighbours; a query alone finds the same as among others."""
    options = stores.StoreOptions(kind)
    store = store_lib.build(options, "", model.head, states[:NUM_ANCHORS], np.arange(NUM_ANCHORS) % 4, small.LABEL_IDS)
    queries = states[NUM_ANCHORS:]
    found = [digest(store.search(queries, search.SearchOptions(5, distance))) for distance in ("forward", "released")]
    one = store.search(queries[7:8], search.SearchOptions(5)).distances_Qk
    assert digest(one) == digest(store.search(queries, search.SearchOptions(5)).distances_Qk[7:8])
    return " ".join(found)


if __name__ == "__main__":
    decoder, prompts = small.make_decoder("opt"), small.make_prompts(48)
    demonstrations = tuple(prompts.groups[0].prefix_P.tolist())
    prompts = dataclasses.replace(prompts, demonstrations=demonstrations)
    for sizes in MESHES:
        if np.prod(sizes) <= jax.device_count():
            mesh = parallel.make_mesh(*sizes)
            model = lm.LanguageModel(decoder, range(208), mesh=mesh, deterministic=True)
            states = states_lib.read(model, prompts)
            print(*sizes, digest(states), *(near(model, states, kind) for kind in store_lib.KINDS), flush=True)
