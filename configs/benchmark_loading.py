"""Measures the host memory that loading a sharded model takes, on forced CPU devices that share this machine.

    python experiments/benchmark_loading.py                               # safetensors of 2.1 GB; 7 GB of disk or less
    python experiments/benchmark_loading.py --config.files=safetensors,msgpack,bin

Every option can be given on the command line as --config.<option>=<value>.
"""

import ml_collections

from knnprompt_jax import options
from knnprompt_jax.benchmark import loading


def get_config() -> ml_collections.ConfigDict:
    return options.config_of(loading.LoadingSettings)
