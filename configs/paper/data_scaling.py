"""Data scaling (table and figure with the power law, and the paper's first two figures): m = 32 … 1024, six model sizes.

    python experiments/paper.py --config=configs/paper/data_scaling.py --config.data_dir=data

The first figure and the pilot figure of ICL against shots need 1 … 32 shots in the few-shot regime too.
Cost: A model with 1,024 tokens of context: 175 passes, 0.24 million prompts, 76 million tokens, most of them DBPedia's
truncated prompts; one with 2,048: 215 passes, 0.25 million prompts, 12 million tokens.
"""

import ml_collections

from knnprompt_jax.paper import base


def get_config() -> ml_collections.ConfigDict:
    config = base.get_config("data_scaling")
    config.models = base.SIX_MODELS
    config.few_shots = (1, *base.FEW_SHOTS)
    return config
