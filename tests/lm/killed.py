"""A program to be killed: `killed.py <folder>` reads prompts and keeps their states in the folder chunk by chunk."""

import pathlib
import sys

import numpy as np
from flax import nnx

from knnprompt_jax import lm
from knnprompt_jax.lm import chunks
from knnprompt_jax.models import decoder, registry
from knnprompt_jax.prompts import layout

NUM_PROMPTS, CHUNK = 101, 11
PLAN = {"fingerprint": "f", "dtype": "float32"}


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


def read(
    folder: pathlib.Path, model: lm.LanguageModel | None = None, chunk: int = CHUNK, **options: object
) -> lm.States:
    return chunks.read(folder, model or make_model(), make_prompts(), PLAN, chunk, **options)


if __name__ == "__main__":
    read(pathlib.Path(sys.argv[1]))
