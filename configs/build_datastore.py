"""Builds a classifier's anchors and saves it: started again after a crash, it goes on after the last whole chunk of anchors.

    python experiments/build_datastore.py --config.store=stores/demo
    python experiments/build_datastore.py --config.store=stores/trec --config.model=gpt2-xl --config.task=trec \
        --config.data_dir=data --config.shots=1024
    python experiments/knn_prompting.py --config.store=stores/demo    # evaluates it
    python experiments/build_datastore.py --config.store=stores/demo --config.append=more.csv
    python experiments/build_datastore.py --config.store=stores/demo --config.relabel=look/suggestions.csv
    python experiments/build_datastore.py --config.store=stores/demo "--config.remove_ids=(3, 17)"

Every option can be given on the command line as --config.<option>=<value>; --help lists them.
"""

import ml_collections

from knnprompt_jax import options
from knnprompt_jax.runs import settings


def get_config() -> ml_collections.ConfigDict:
    return options.config_of(settings.BuildSettings)
