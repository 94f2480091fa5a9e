"""Whole against partial distribution (table): all tokens or label words alone, m = 1024.

    python experiments/paper.py --config=configs/paper/whole_vs_partial.py --config.data_dir=data

Cost: 50 passes, 0.18 million prompts, 69 million tokens, most of them DBPedia's truncated prompts.
"""

import ml_collections

from knnprompt_jax.paper import base


def get_config() -> ml_collections.ConfigDict:
    config = base.get_config("whole_vs_partial")
    config.methods = "icl,knn,knn_partial"
    config.shots = (1024,)
    return config
