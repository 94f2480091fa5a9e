"""Split strategy (heatmaps): every |D| and |A| whose sum the context holds as demonstrations, k = min(3, |A|), five tasks.

    python experiments/paper.py --config=configs/paper/split_strategy.py --config.data_dir=data

Cost: 180 passes, 50 thousand prompts, 1.3 million tokens.
"""

import ml_collections

from knnprompt_jax.paper import base


def get_config() -> ml_collections.ConfigDict:
    config = base.get_config("split_strategy")
    config.tasks = base.BINARY_TASKS
    config.methods = "knn"
    config.seeds = base.TEN_SEEDS
    config.demo_shots = (1, 2, 4, 8, 16)  # |D|, rows a class ...
    config.anchor_shots = (1, 2, 4, 8, 16)  # ... and |A|; m is their sum.
    return config
