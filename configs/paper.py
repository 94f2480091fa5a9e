"""The paper's tables and figures, by name: --config=configs/paper.py:few_shot. docs/paper.md lists them."""

import ml_collections

from knnprompt_jax.paper import experiments


def get_config(name: str = "few_shot") -> ml_collections.ConfigDict:
    return experiments.get(name).config()
