"""A program to be killed: `killed.py <folder>` reads prompts with a cache in the folder, in small chunks."""

import pathlib
import sys

import numpy as np

from knnprompt_jax import lm, states
from knnprompt_jax.models import registry
from knnprompt_jax.prompts import layout
from knnprompt_jax.states import reading
from tests import random_weights

NUM_PROMPTS = 101


def make_model(deterministic: bool = False) -> lm.LanguageModel:
    sizes = {"vocab_size": 211, "n_embd": 30, "n_layer": 2, "n_head": 5, "n_inner": 41, "n_positions": 101}
    model = random_weights.make(registry.config_from_hf({"model_type": "gpt2", **sizes}), 0, (0.02, 0.1, 0.1))
    return lm.LanguageModel(model, range(211), fingerprint="f", step_tokens=256, deterministic=deterministic)


def make_prompts(count: int = NUM_PROMPTS) -> layout.Prompts:
    """Return prompts with a shared prefix; every seventh is truncated."""
    rng = np.random.default_rng(1)
    tokens = [rng.integers(0, 211, 101 if i % 7 == 3 else 1 + i % 37).astype(np.int32) for i in range(count)]
    cut, index = np.arange(count) % 7 == 3, np.arange(count)
    prefix_P = rng.integers(0, 211, 53).astype(np.int32)
    groups = [(prefix_P, index[~cut]), (prefix_P[:0], index[cut])]
    groups = [layout.PromptGroup(prefix, tuple(tokens[i] for i in own), own) for prefix, own in groups]
    return layout.Prompts(tuple(groups), count, demonstrations=tuple(prefix_P.tolist()))


def read(folder: pathlib.Path, model: lm.LanguageModel | None = None) -> lm.States:
    reading._CHUNK_STEPS = {"cpu": 1}
    return states.read(model or make_model(), make_prompts(), states.Cache(folder, 2**30))


if __name__ == "__main__":
    read(pathlib.Path(sys.argv[1]))
