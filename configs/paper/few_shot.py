"""Few-shot scenario (the main table): m = 2 … 32, |D| = 1 for kNN Prompting, calibration-based baselines beside it, 10 seeds.

    python experiments/paper.py --config=configs/paper/few_shot.py --config.data_dir=data

Cost: 360 passes, 0.92 million prompts, 43 million tokens: most prompts are the noisy channel's, most tokens those of truncated prompts.
"""

import ml_collections

from knnprompt_jax.paper import base


def get_config() -> ml_collections.ConfigDict:
    config = base.get_config("few_shot")
    config.tasks = base.SIX_TASKS
    config.methods = "icl,contextual_calibration,noisy_channel,knn,knn_partial"
    config.shots = base.FEW_SHOTS
    config.seeds = base.TEN_SEEDS
    config.regime = "few-shot"
    return config
