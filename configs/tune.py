"""Which rule, k, distance and number of demonstrations to take, from the train rows alone, beside baselines.

    python experiments/tune.py                                # the default model and the shipped task
    python experiments/tune.py --config.model=gpt2-xl --config.task=my_task.yaml --config.train_file=train.csv
    python experiments/tune.py --config.store=stores/demo     # a saved classifier: no pass of the model

Every train row that is no demonstration is classified by all others. Every option can be given on the command line as
--config.<option>=<value>; --help lists them.
"""

import ml_collections

from knnprompt_jax import options
from knnprompt_jax.runs import tuning


def get_config() -> ml_collections.ConfigDict:
    return options.config_of(tuning.TuningSettings)
