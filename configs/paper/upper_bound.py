"""Upper bound of demonstration selection (table): the best of 1,000 random prompts against kNN Prompting, m = 1024.

    python experiments/paper.py --config=configs/paper/upper_bound.py --config.data_dir=data

The bound is chosen on the rows to classify. It is searched for with the first seed only, as published.
Cost: 30 passes, 1.6 million prompts, 43 million tokens, a thousand prompts for each row to classify.
"""

import ml_collections

from knnprompt_jax.paper import base


def get_config() -> ml_collections.ConfigDict:
    config = base.get_config("upper_bound")
    config.tasks = base.SIX_TASKS
    config.methods = "icl,demonstration_upper_bound,knn"
    config.shots = (1024,)
    return config
