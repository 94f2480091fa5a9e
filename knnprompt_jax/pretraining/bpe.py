"""A byte-level BPE tokenizer of any size, as GPT-2's, trained on the model's own text."""

from collections.abc import Iterable

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from knnprompt_jax.pretraining import text


def train(documents: Iterable[str], vocab_size: int) -> tokenizers.Tokenizer:
    """A tokenizer with `vocab_size` entries: 256 bytes, merges, and the end-of-text token last (as in GPT-2)."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - 1,
        min_frequency=2,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    tokenizer.add_special_tokens([text.END_OF_TEXT])
    return tokenizer
