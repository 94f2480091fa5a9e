"""The main job: kNN Prompting beside in-context learning with the same demonstrations.

    python experiments/knn_prompting.py                       # the default model and the shipped task
    python experiments/knn_prompting.py --config.model=gpt2-xl --config.task=trec --config.data_dir=data --config.shots=1024
    python experiments/knn_prompting.py --config.options.knn.k=5 --config.options.knn.distance=released

Every option can be given on the command line as --config.<option>=<value>; --help lists them.
"""

import ml_collections

from knnprompt_jax import options
from knnprompt_jax.runs import settings


def get_config() -> ml_collections.ConfigDict:
    return options.config_of(settings.JobSettings, methods="icl,knn")
