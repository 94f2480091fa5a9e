"""Empirical choice of k (figure): k from 1 to |A| on three tasks.

    python experiments/paper.py --config=configs/paper/choice_of_k.py --config.data_dir=data

The paper does not say m; 32 with |D| = 1 is ours, which leaves 62 anchors.
Cost: 30 passes, 9.5 thousand prompts, 0.23 million tokens; one pass serves every k.
"""

import ml_collections

from knnprompt_jax.paper import base


def get_config() -> ml_collections.ConfigDict:
    config = base.get_config("choice_of_k")
    config.tasks = "sst2,subj,mpqa"
    config.methods = "knn"
    config.shots = (32,)
    config.seeds = base.TEN_SEEDS
    config.regime = "few-shot"
    return config
