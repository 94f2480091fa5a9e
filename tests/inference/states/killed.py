"""A program to be killed: `killed.py <folder>` reads prompts with a cache in the folder, in small chunks."""

import pathlib
import sys

from knnprompt_jax.inference import lm, states
from knnprompt_jax.inference.states import reading
from tests import prompt_groups, random_weights

PROMPTS = prompt_groups.make_random(101, truncated=14)


def make_model(deterministic: bool = False) -> lm.LanguageModel:
    decoder = random_weights.small("gpt2")
    options = {"fingerprint": "f", "step_tokens": 256, "deterministic": deterministic}
    return lm.LanguageModel.from_decoder(decoder, range(211), **options)


def read(folder: pathlib.Path, model: lm.LanguageModel | None = None) -> lm.States:
    reading._CHUNK_STEPS_ON_CPU = 1
    return states.read(model or make_model(), PROMPTS, states.DiskCache(folder, 2**30))


if __name__ == "__main__":
    read(pathlib.Path(sys.argv[1]))
