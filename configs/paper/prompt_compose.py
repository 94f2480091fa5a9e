"""Demonstration selection (table and figure): PromptCompose by four retrievers against kNN Prompting, m = 32 … 1024.

    python experiments/paper.py --config=configs/paper/prompt_compose.py --config.data_dir=data

Cost: 50 passes, 0.49 million prompts, 270 million tokens: each retrieved prompt is read whole.
"""

import ml_collections

from knnprompt_jax.paper import base


def get_config() -> ml_collections.ConfigDict:
    config = base.get_config("prompt_compose")
    config.methods = (
        "icl,prompt_compose_bm25,prompt_compose_sbert,prompt_compose_simcse,prompt_compose_trans_encoder,knn"
    )
    return config
