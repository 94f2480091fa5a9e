"""Measures the throughput of building and searching a datastore.

    python experiments/benchmark.py                                    # SmolLM2 on the demo task; some minutes on 2 CPU cores
    python experiments/benchmark.py --config.mode=construction --config.task=trec --config.data_dir=data \
        --config.restore_dropped --config.anchors=0    # TREC's whole anchor set
    python experiments/benchmark.py --config.mode=construction --config.llama_python=llama/bin/python \
        --config.task=trec --config.data_dir=data --config.restore_dropped --config.anchors=0   # beside llama.cpp on the same file
    python experiments/benchmark.py --config.mode=construction --config.model=opt-6.7b --config.dtype=bfloat16 \
        --config.anchors=0 --config.peers=jax_one,jax_batched  # one GPU

PyTorch peers share the device: on a GPU, start with XLA_PYTHON_CLIENT_PREALLOCATE=false to leave them room.
"""

import ml_collections

from knnprompt_jax import options
from knnprompt_jax.benchmark import settings


def get_config() -> ml_collections.ConfigDict:
    return options.config_of(settings.BenchmarkSettings)
