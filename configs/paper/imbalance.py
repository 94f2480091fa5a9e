"""Imbalanced anchors (figure): one class rare, with and without centroids, few-shot (m = 32, |D| = 1) and full (m = 1024).

    python experiments/paper.py --config=configs/paper/imbalance.py --config.data_dir=data

As many anchors as without imbalance; demonstrations and test rows stay as they are.
Cost: 40 passes, 82 thousand prompts, 1.8 million tokens; one pass serves every ratio and kind of centroid.
"""

import ml_collections

from knnprompt_jax.paper import base


def get_config() -> ml_collections.ConfigDict:
    config = base.get_config("imbalance")
    config.tasks = "mpqa,mr"
    config.methods = "knn,knn_centroid,knn_centroid_geometric"
    config.shots = (1024,)
    config.few_shots = (32,)
    config.seeds = base.TEN_SEEDS
    config.shares = (0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625)  # Of the rare class.
    return config
