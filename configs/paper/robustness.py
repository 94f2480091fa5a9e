"""Robustness (figure): the spread over 10 seeds for each anchor-set size, m = 32 … 1024.

    python experiments/paper.py --config=configs/paper/robustness.py --config.data_dir=data

Cost: 100 passes, 0.41 million prompts, 144 million tokens, most of them DBPedia's truncated prompts.
"""

import ml_collections

from knnprompt_jax.paper import base


def get_config() -> ml_collections.ConfigDict:
    config = base.get_config("robustness")
    config.seeds = base.TEN_SEEDS
    return config
