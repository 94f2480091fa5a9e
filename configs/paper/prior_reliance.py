"""Reliance on prior knowledge (table): the positive class rare in the train rows (A), in the test rows (B), in both (C).

    python experiments/paper.py --config=configs/paper/prior_reliance.py --config.data_dir=data

The paper does not say m; 16 is ours.
Cost: 250 passes, 1.1 million prompts, 57 million tokens, the noisy channel's for the greater part.
"""

import ml_collections

from knnprompt_jax.paper import base


def get_config() -> ml_collections.ConfigDict:
    config = base.get_config("prior_reliance")
    config.tasks = base.BINARY_TASKS
    config.methods = "icl,contextual_calibration,contextual_calibration_trainset,noisy_channel,knn"
    config.shots = (16,)
    config.seeds = base.TEN_SEEDS
    config.regime = "few-shot"
    config.prior_settings = "A,B,C"  # Names with commas between them.
    config.shares = (0.125, 0.25, 0.375, 0.5)  # Of the positive class.
    return config
