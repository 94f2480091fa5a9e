"""Low resource (table): m = 128, ten tasks, six model sizes, beside the ICL ensemble and fine-tuned BERT-large and GPT-2 large.

    python experiments/paper.py --config=configs/paper/low_resource.py --config.data_dir=data

Cost: A model with 1,024 tokens of context: 100 passes, 0.85 million prompts, 68 million tokens, the ensemble's for the
greater part; one with 2,048: 0.62 million prompts, 40 million tokens. Beside them 200 models are fine-tuned, 250 steps each.
"""

import ml_collections

from knnprompt_jax.paper import base


def get_config() -> ml_collections.ConfigDict:
    config = base.get_config("low_resource")
    config.models = base.SIX_MODELS
    config.methods = "icl,icl_ensemble,knn,fine_tuning_bert,fine_tuning_gpt2"
    config.shots = (128,)
    config.seeds = base.TEN_SEEDS
    return config
