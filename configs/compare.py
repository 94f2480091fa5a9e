"""Any set of methods on the same splits: one table, and a JSON record per run and method.

    python experiments/compare.py                                     # every method that applies
    python experiments/compare.py --config.methods=icl,knn,linear_probe --config.options.knn.k=5
    python experiments/compare.py --config.model=gpt2-xl --config.task=trec --config.data_dir=data --config.shots=128

Every option can be given on the command line as --config.<option>=<value>; --help lists them.
"""

import ml_collections

from knnprompt_jax import options
from knnprompt_jax.runs import settings


def get_config() -> ml_collections.ConfigDict:
    return options.config_of(settings.JobSettings)
