"""Trains a small GPT-2 from text files and exports it as a Hugging Face folder.

    python experiments/pretrain.py --config.text=corpus/ --config.output=checkpoints/tiny

The defaults are those of the shipped model (knnprompt_jax/demo/model/README.md has its text, time and perplexity).
"""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    config = ml_collections.ConfigDict()
    config.text = (
        "corpus",
    )  # .txt or .txt.gz files, folders of them, glob patterns; a line <|endoftext|> ends a document.
    config.output = "checkpoints/pretrain"  # Checkpoints, log.jsonl and, in the end, model/.

    config.vocab_size = 5120  # Byte-level BPE trained on the text.
    config.width = 256
    config.layers = 5
    config.heads = 4
    config.context = 1024  # Tokens.

    config.steps = 2000
    config.batch = 4  # Sequences of `context` tokens a step.
    config.learning_rate = 2e-3
    config.warmup = 100  # Steps.
    config.decay = 0.25  # Share of the steps, the last, over which the rate falls to zero.
    config.weight_decay = 0.1
    config.seed = 0
    config.remat = False  # Recompute blocks in the backward pass: less memory, a third more work.

    config.evaluate_every = 100  # Steps.
    config.checkpoint_every = 50
    config.export_dtype = "float16"
    return config
