"""Case studies (figures): a map of anchors and test rows, and rows that kNN Prompting gets right where ICL does not.

    python experiments/paper.py --config=configs/paper/case_study.py --config.data_dir=data

Beside each kNN record stands an .npz file with texts, labels, predictions, neighbours and what the map is drawn from.
Cost: 5 passes, 2 thousand prompts, 0.75 million tokens.
"""

import ml_collections

from knnprompt_jax.paper import base


def get_config() -> ml_collections.ConfigDict:
    config = base.get_config("case_study")
    config.tasks = "dbpedia,sst2,trec,agnews,mr"
    config.shots = (32,)
    config.seeds = (1,)
    return config
