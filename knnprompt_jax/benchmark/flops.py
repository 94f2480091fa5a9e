"""How many floating-point operations a pass needs; a multiplication and an addition are two.

Counted are matrix products and attention over the tokens that a query may read, padding and masked pairs not.
Normalisation, activations, rotations and softmax are left out, and windows count as if they held everything.
"""

from collections.abc import Sequence

import numpy as np

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.prompts import layout, packing


def needed(config: config_lib.DecoderConfig, groups: Sequence[layout.PromptGroup]) -> int:
    """What no exact procedure with a shared prefix can do without.

    The prefix passes once, and its last block gives keys and values only. Suffixes pass all blocks but the last, which
    runs on keys and values of all tokens and otherwise on each suffix's last token; the head runs on that alone.
    What suffixes begin with in common counts once, wherever they are packed.
    """
    total = 0
    for group in groups:
        prefix, lengths_N = len(group.prefix_P), np.array([len(suffix) for suffix in group.suffixes])
        tokens, pairs = _distinct(group)
        suffixes = len(lengths_N)
        full = config.num_layers - 1
        total += (prefix + tokens) * (full * _block(config) + _keys_and_values(config) + _projection(config))
        total += full * _attention(config, prefix * (prefix + 1) // 2 + pairs)
        total += suffixes * (_block(config) - _keys_and_values(config))
        total += _attention(config, suffixes * prefix + int(lengths_N.sum()))
        total += suffixes * (_head(config) + _projection(config))
    return total


def all_blocks(config: config_lib.DecoderConfig, groups: Sequence[layout.PromptGroup]) -> int:
    """The plainer count: every suffix token in every block and its attention, the head once per suffix, no prefix pass."""
    total = 0
    for group in groups:
        lengths_N = np.array([len(suffix) for suffix in group.suffixes])
        total += int(lengths_N.sum()) * config.num_layers * _block(config)
        # Each token reads the prefix, the tokens before it and itself.
        pairs = int((lengths_N * len(group.prefix_P) + lengths_N * (lengths_N + 1) // 2).sum())
        total += config.num_layers * _attention(config, pairs)
        total += len(lengths_N) * _head(config)
    return total


def _block(config: config_lib.DecoderConfig) -> int:
    """Matrix products of one token in one block: query, key, value and output projections, MLP."""
    queries = config.width * config.num_heads * config.head_size
    mlp = (3 if config.gated_mlp else 2) * config.width * config.mlp_width
    return 2 * (2 * queries + mlp) + _keys_and_values(config)


def _keys_and_values(config: config_lib.DecoderConfig) -> int:
    return 2 * 2 * config.width * config.num_kv_heads * config.head_size


def _attention(config: config_lib.DecoderConfig, pairs: int) -> int:
    """Logits and weighted sums of so many (query, key) pairs in one block, all heads."""
    return 4 * config.num_heads * config.head_size * pairs


def _distinct(group: layout.PromptGroup) -> tuple[int, int]:
    """Suffix tokens, and pairs of such a token and a token that it reads, where a token after the same tokens is the same."""
    tokens = pairs = 0
    last = np.zeros(0, int)
    for suffix in sorted(group.suffixes, key=lambda suffix: suffix.tolist()):
        shared = packing.num_shared(last, suffix)
        tokens += len(suffix) - shared
        pairs += int((len(group.prefix_P) + np.arange(shared, len(suffix)) + 1).sum())
        last = suffix
    return tokens, pairs


def _head(config: config_lib.DecoderConfig) -> int:
    return 2 * config.vocab_size * config.embed_width


def _projection(config: config_lib.DecoderConfig) -> int:
    """Into the blocks or out of them, where embeddings are narrower (OPT-350m)."""
    return 2 * config.width * config.embed_width if config.has_projections else 0
