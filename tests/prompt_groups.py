"""Prompts of given or random tokens, for tests that need no tokenizer."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from knnprompt_jax.inference.prompts import layout

VOCABULARY = 208
NUM_TRUNCATED_TOKENS = 101


def make_group(suffixes: Sequence[Sequence[int]], prefix: Sequence[int] = (), index=None) -> layout.PromptGroup:
    """Return the group of prompts with these tokens, at these positions among all prompts; by default in this order."""
    return layout.PromptGroup(
        np.array(prefix, np.int32),
        layout.TokenRows.of(suffixes),
        np.arange(len(suffixes)) if index is None else np.array(index),
    )


def make(suffixes: Sequence[Sequence[int]], prefix: Sequence[int] = ()) -> layout.Prompts:
    """Return prompts of one group, whose prefix is the demonstrations."""
    demonstrations = tuple(int(token) for token in prefix)
    return layout.Prompts.from_groups([make_group(suffixes, prefix)], len(suffixes), demonstrations)


def make_random_group(lengths: Sequence[int], prefix_length=0, seed=0, vocabulary=50257) -> layout.PromptGroup:
    """Return a group of random suffixes of these lengths; no token is 0, the value of padding."""
    rng = np.random.default_rng(seed)
    suffixes = [rng.integers(1, vocabulary, length) for length in lengths]
    return make_group(suffixes, rng.integers(1, vocabulary, prefix_length))


def make_random(count: int, truncated=5, prefix_length=53, lengths=(1, 2, 13, 37), seed=1) -> layout.Prompts:
    """Return `count` prompts in a mixed order.

    `truncated` of them have no prefix; the suffixes of the others have the lengths `lengths` in turn.
    """
    rng = np.random.default_rng(seed)
    num_whole = count - truncated
    sizes = [prefix_length, *np.resize(lengths, num_whole), *[NUM_TRUNCATED_TOKENS] * truncated]
    prefix_P, *suffixes = (rng.integers(0, VOCABULARY, size).astype(np.int32) for size in sizes)
    index = rng.permutation(count)
    groups = [layout.PromptGroup(prefix_P, layout.TokenRows.of(suffixes[:num_whole]), index[:num_whole])]
    if truncated:
        groups.append(layout.PromptGroup(prefix_P[:0], layout.TokenRows.of(suffixes[num_whole:]), index[num_whole:]))
    return layout.Prompts.from_groups(
        groups, count, prefix_P.tolist(), truncated_index=tuple(index[num_whole:].tolist())
    )


def take(prompts: layout.Prompts, start: int, stop: int) -> layout.Prompts:
    """Return the prompts from number `start` to before `stop`."""
    groups = []
    for group in prompts.groups:
        [members] = np.nonzero((group.number_N >= start) & (group.number_N < stop))
        if members.size:
            part = group.take(members)
            groups.append(dataclasses.replace(part, number_N=part.number_N - start))
    return layout.Prompts.from_groups(groups, stop - start, prompts.demonstration_tokens)


def tokens_of(prompts: layout.Prompts) -> list[list[int]]:
    """Return the tokens of each prompt, in the order of the queries; check that every prompt occurs once."""
    tokens = {}
    for group in prompts.groups:
        for index, suffix in zip(group.number_N, group.suffixes, strict=True):
            assert suffix.dtype == group.prefix_P.dtype == np.int32 and suffix.size
            tokens[int(index)] = [*group.prefix_P.tolist(), *suffix.tolist()]
    assert sorted(tokens) == list(range(prompts.num_prompts))
    return [tokens[index] for index in range(prompts.num_prompts)]
