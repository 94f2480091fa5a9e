"""Distance measurement (table): L2 between contextual representations against KL between distributions, m = 32.

    python experiments/paper.py --config=configs/paper/distance.py --config.data_dir=data

Cost: 50 passes, 17 thousand prompts, 3.6 million tokens.
"""

import ml_collections

from knnprompt_jax.paper import base


def get_config() -> ml_collections.ConfigDict:
    config = base.get_config("distance")
    config.methods = "icl,knn_l2,knn"
    config.shots = (32,)
    return config
