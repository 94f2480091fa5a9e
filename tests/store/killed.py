"""Programs to be killed: `killed.py build|overwrite <folder>` builds a datastore, or overwrites one by another without end."""

import pathlib
import sys

import jax.numpy as jnp
import numpy as np
from flax import nnx

from knnprompt_jax import lm
from knnprompt_jax.models import decoder, registry
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.prompts import layout
from knnprompt_jax.store import building, manifest, storage, stores

NUM_PROMPTS, CHUNK, SIZES = 101, 11, (31, 47)
PROVENANCE = manifest.Provenance(
    **{"model": "m", "fingerprint": "f", "tokenizer": "t", "dtype": "float32", "task": "random", "template": "{x}"},
    **{"labels": ("a", "b", "c"), "label_words": ("a", "b", "c"), "label_ids": (5, 7, 11)},
    **{"demonstrations": "d", "num_demonstrations": 1, "truncation": "left"},
)


def make_model() -> lm.LanguageModel:
    sizes = {"vocab_size": 211, "n_embd": 30, "n_layer": 2, "n_head": 5, "n_inner": 41, "n_positions": 101}
    model = decoder.Decoder(registry.config_from_hf({"model_type": "gpt2", **sizes}), nnx.Rngs(0))
    return lm.LanguageModel(model, range(211), step_tokens=256)


def make_prompts(count: int = NUM_PROMPTS) -> layout.Prompts:
    """After a shared prefix, and every seventh truncated."""
    rng = np.random.default_rng(1)
    tokens = [rng.integers(0, 211, 101 if i % 7 == 3 else 1 + i % 37).astype(np.int32) for i in range(count)]
    cut, index = np.arange(count) % 7 == 3, np.arange(count)
    prefix_P = rng.integers(0, 211, 53).astype(np.int32)
    groups = [(prefix_P, index[~cut]), (prefix_P[:0], index[cut])]
    groups = [layout.PromptGroup(prefix, tuple(tokens[i] for i in own), own) for prefix, own in groups]
    return layout.Prompts(tuple(groups), count)


def build(folder: pathlib.Path, model: lm.LanguageModel | None = None, **options: object) -> stores.Store:
    labels = np.arange(NUM_PROMPTS) % 3
    options = {"chunk": CHUNK, "kind": "factored", **options}
    ids = range(NUM_PROMPTS)
    return building.build_resumable(folder, model or make_model(), make_prompts(), labels, ids, PROVENANCE, **options)


def make_store(size: int) -> stores.Store:
    """A dense store of that many random anchors."""
    rng = np.random.default_rng(size)
    states = lm.States(rng.normal(size=(size, 30)).astype(np.float32), np.zeros(size, np.float32))
    head_VE = rng.normal(size=(211, 30)).astype(np.float32)
    return stores.build("dense", head_lib.Head(jnp.asarray(head_VE)), states, np.arange(size) % 3, PROVENANCE.label_ids)


if __name__ == "__main__":
    task, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    if task == "build":
        build(folder)
    else:
        both = [make_store(size) for size in SIZES]
        print("overwriting", flush=True)
        while True:
            for store in both:
                storage.save(folder, store, PROVENANCE, overwrite=True)
