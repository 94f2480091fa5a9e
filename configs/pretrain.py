"""Trains a small GPT-2 from text files and exports it as a Hugging Face folder.

    python experiments/pretrain.py --config.text=corpus/ --config.output=checkpoints/tiny

The defaults are those of the shipped model (knnprompt_jax/demo/model/README.md has its text, time and perplexity).
"""

import ml_collections

from knnprompt_jax import options
from knnprompt_jax.pretraining import settings


def get_config() -> ml_collections.ConfigDict:
    return options.config_of(settings.PretrainSettings)
