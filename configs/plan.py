"""Estimates the memory and time of a job on accelerators that you need not have, and the mesh to choose.

    pip install 'knnprompt_jax[tpu]'     # The TPU's compiler: a wheel of 213 MB; no TPU is needed.
    python experiments/plan.py --config.model=facebook/opt-30b --config.dtype=bfloat16 --config.topology=v5e:4x4 \
        --config.task=trec --config.data_dir=data --config.tokenizer=tokenizers/gpt2    # minutes per mesh on 2 CPU cores
    python experiments/plan.py --config.model=tiny --config.topology=cpu:8    # to try it
    python experiments/plan.py --config.model=Qwen/Qwen3-32B --config.topology=h100:8 --config.compile=False    # GPUs: by arithmetic, at once

Weights are neither read nor downloaded. --help lists all options.
"""

import ml_collections

from knnprompt_jax import options
from knnprompt_jax.planning import settings


def get_config() -> ml_collections.ConfigDict:
    return options.config_of(settings.PlanSettings)
