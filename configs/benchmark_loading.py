"""Measures the host memory that loading a sharded model takes, on forced CPU devices that share this machine.

    python experiments/benchmark_loading.py                               # safetensors of 2.1 GB; 7 GB of disk or less
    python experiments/benchmark_loading.py "--config.files=('safetensors','msgpack','bin')"

Every option can be given on the command line as --config.<option>=<value>.
"""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    config = ml_collections.ConfigDict()
    config.files = ("safetensors",)  # safetensors, msgpack, bin (which needs torch).
    config.gigabytes = 2.1  # Float32 weights of at least so many bytes, made on the spot.
    config.processes = (1, 2)  # Of which each loads its part of the shards.
    config.devices = 8  # Over which the weights are split, those of all processes together.
    config.folder = ""  # Where the checkpoints are made and removed again; empty: the folder for temporary files.
    return config
