"""Prompts arranged each by itself: where a prompt's tokens lie depends on no other prompt, and so neither does any rounding.

The prefix is what the demonstrations are in tokens, not what prompts happen to share. A row holds one suffix, from its first column on,
and is as wide as the next power of two of that suffix's length; the number of rows per step follows from that width alone.
"""

import collections
import dataclasses

import numpy as np

from knnprompt_jax.prompts import layout, packing

SMALLEST = 16  # Columns of a row, and tokens read per step: what matrix products take at a time divides all shapes.


def arrange(prompts: layout.Prompts) -> layout.Prompts:
    """The same prompts in groups of one prefix and one row width each."""
    head_P = np.array(prompts.demonstrations, np.int32)
    members = collections.defaultdict(list)
    for group in prompts.groups:
        for place, suffix in zip(group.index, group.suffixes, strict=True):
            tokens = np.concatenate([group.prefix_P, suffix])
            shared = len(head_P) * (len(tokens) > len(head_P) and np.array_equal(tokens[: len(head_P)], head_P))
            members[shared, _width(len(tokens) - shared)].append((place, tokens[shared:]))
    groups = []
    for (shared, _), each in sorted(members.items()):
        index, suffixes = zip(*each, strict=True)
        groups.append(layout.PromptGroup(head_P[:shared], suffixes, np.array(index)))
    return dataclasses.replace(prompts, groups=tuple(groups))


def shape(group: layout.PromptGroup, step_tokens: int) -> packing.PackShape:
    """The packing of an arranged group, of at most `step_tokens` tokens per step or a single row."""
    width = _width(len(group.suffixes[0]))
    rows = 1 << (max(1, step_tokens // width).bit_length() - 1)
    return packing.PackShape(packing.round_up(len(group.prefix_P), 64), width, rows, max(SMALLEST, rows), alone=True)


def _width(length: int) -> int:
    return max(SMALLEST, 1 << (length - 1).bit_length())
