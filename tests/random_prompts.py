"""Prompts of random tokens with a shared prefix, some of them truncated, in a mixed order."""

from collections.abc import Sequence

import numpy as np

from knnprompt_jax.prompts import layout

VOCABULARY, TRUNCATED = 208, 101


def make(
    count: int, truncated: int = 5, prefix_length: int = 53, lengths: Sequence[int] = (1, 2, 13, 37), seed: int = 1
) -> layout.Prompts:
    """Return `count` prompts, `truncated` of them without the prefix; the others' own lengths are `lengths` in turn."""
    rng, num_whole = np.random.default_rng(seed), count - truncated
    sizes = [prefix_length, *np.resize(lengths, num_whole), *[TRUNCATED] * truncated]
    prefix_P, *suffixes = (rng.integers(0, VOCABULARY, size).astype(np.int32) for size in sizes)
    index = rng.permutation(count)
    groups = [layout.PromptGroup(prefix_P, tuple(suffixes[:num_whole]), index[:num_whole])]
    if truncated:
        groups.append(layout.PromptGroup(prefix_P[:0], tuple(suffixes[num_whole:]), index[num_whole:]))
    return layout.Prompts(tuple(groups), count, truncated, demonstrations=tuple(prefix_P.tolist()))


def tokens_of(prompts: layout.Prompts) -> list[list[int]]:
    """Return the tokens of each prompt, in order."""
    tokens = {}
    for group in prompts.groups:
        for place, suffix in zip(group.index, group.suffixes, strict=True):
            assert suffix.dtype == group.prefix_P.dtype == np.int32 and suffix.size
            tokens[int(place)] = [*group.prefix_P.tolist(), *suffix.tolist()]
    assert sorted(tokens) == list(range(prompts.num_prompts))
    return [tokens[place] for place in range(prompts.num_prompts)]
