"""Count the floating-point operations of a language-model pass. A multiplication and an addition are two operations.

Matrix products and attention count. Normalisation, activations, rotations and softmax do not. An attention window
counts as if it covered all tokens.
"""

from collections.abc import Sequence

import numpy as np

from knnprompt_jax.inference.prompts import layout, packing
from knnprompt_jax.models import config as config_lib


def prefix_program(config: config_lib.DecoderConfig, tokens: int) -> int:
    """Return the operations of the prefix program.

    The program computes its whole last block, although only the keys and values of that block are used.
    """
    pairs = config.num_layers * tokens * tokens
    return tokens * (config.num_layers * _block(config) + _projection(config)) + _attention(config, pairs)


def packed_step(config: config_lib.DecoderConfig, shape: packing.PackShape) -> int:
    """Return the operations of one packed step of suffixes, padding and masked pairs included."""
    tokens = shape.rows * shape.width
    full = config.num_layers - 1
    pairs = full * tokens * (shape.prefix + shape.width) + shape.outputs * (shape.prefix + tokens)
    everywhere = tokens * (full * _block(config) + _keys_and_values(config) + _projection(config))
    at_outputs = shape.outputs * (_block(config) - _keys_and_values(config) + _projection(config) + _head(config))
    return everywhere + at_outputs + _attention(config, pairs)


def required(config: config_lib.DecoderConfig, groups: Sequence[layout.PromptGroup]) -> int:
    """Return the operations that every exact procedure with a shared prefix requires.

    The prefix passes once, and its last block computes keys and values only. Suffixes pass all blocks but the last. The
    last block computes keys and values of all tokens, and everything else only for each suffix's last token, as does
    the head. Leading tokens that suffixes share count once. Each of our data shards reads the prefix, so shares of peak
    count the other shards' passes over it as loss.
    """
    total = 0
    for group in groups:
        prefix = len(group.prefix_P)
        suffixes = len(group.suffixes)
        tokens, pairs = _distinct(group)
        full = config.num_layers - 1
        total += (prefix + tokens) * (full * _block(config) + _keys_and_values(config) + _projection(config))
        total += full * _attention(config, prefix * (prefix + 1) // 2 + pairs)
        total += suffixes * (_block(config) - _keys_and_values(config))
        total += _attention(config, suffixes * prefix + sum(map(len, group.suffixes)))
        total += suffixes * (_head(config) + _projection(config))
    return total


def _block(config: config_lib.DecoderConfig) -> int:
    """Return a token's operations in a block: query, key, value and output projections, and the MLP."""
    queries = config.width * config.num_heads * config.head_size
    mlp = (3 if config.gated_mlp else 2) * config.width * config.mlp_width
    return 2 * (2 * queries + mlp) + _keys_and_values(config)


def _keys_and_values(config: config_lib.DecoderConfig) -> int:
    """Return a token's operations for keys and values in a block."""
    return 2 * 2 * config.width * config.num_kv_heads * config.head_size


def _attention(config: config_lib.DecoderConfig, pairs: int) -> int:
    """Return the operations of logits and weighted sums of `pairs` (query, key) pairs in one block, all heads."""
    return 4 * config.num_heads * config.head_size * pairs


def _head(config: config_lib.DecoderConfig) -> int:
    """Return the operations of the logits of one token."""
    return 2 * config.vocab_size * config.embed_width


def _projection(config: config_lib.DecoderConfig) -> int:
    """Return the operations into the blocks or out of them, where embeddings are narrower (OPT-350m)."""
    return 2 * config.width * config.embed_width if config.has_projections else 0


def _distinct(group: layout.PromptGroup) -> tuple[int, int]:
    """Return the number of distinct suffix tokens, and of pairs of such a token and a token that it attends to.

    Equal tokens after equal tokens count once.
    """
    tokens = pairs = 0
    last = np.zeros(0, int)
    for suffix in sorted(group.suffixes, key=lambda suffix: suffix.tolist()):
        shared = packing.num_shared(last, suffix)
        tokens += len(suffix) - shared
        pairs += int((len(group.prefix_P) + np.arange(shared, len(suffix)) + 1).sum())
        last = suffix
    return tokens, pairs
