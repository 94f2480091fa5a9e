"""The paper's tables and figures, by name: --config=configs/paper.py:few_shot, or :all. docs/paper.md lists them."""

import ml_collections

from knnprompt_jax.paper import experiments, whole


def get_config(name: str = "few_shot") -> ml_collections.ConfigDict:
    return whole.config() if name == whole.NAME else experiments.get(name).config()
