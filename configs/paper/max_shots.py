"""Dataset statistics: classes, template tokens, and the shots that 1,024 and 2,048 tokens hold (two tables).

    python experiments/paper.py --config=configs/paper/max_shots.py --config.data_dir=data --config.tokenizer=<folder of GPT-2's tokenizer>

No language model is read; minutes on a CPU core.
"""

import ml_collections

from knnprompt_jax.paper import base


def get_config() -> ml_collections.ConfigDict:
    config = base.get_config("max_shots")
    config.contexts = (1024, 2048)  # Tokens.
    config.tokenizer = ""  # A folder with a tokenizer; empty: the first model's.
    return config
