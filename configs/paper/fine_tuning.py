"""Comparison to fine-tuning (figure): kNN Prompting against fine-tuned BERT-large and GPT-2 large, m = 32 … 1024.

    python experiments/paper.py --config=configs/paper/fine_tuning.py --config.data_dir=data

Cost: gpt2-large: 50 passes, 0.21 million prompts, 74 million tokens; opt-30b with its longer context far fewer tokens.
Beside them 600 models are fine-tuned, 125 to 500 steps each.
"""

import ml_collections

from knnprompt_jax.paper import base


def get_config() -> ml_collections.ConfigDict:
    config = base.get_config("fine_tuning")
    config.models = "gpt2-large,facebook/opt-30b"
    config.methods = "knn,fine_tuning_bert,fine_tuning_gpt2"
    return config
