"""Prompts laid out one per row for deterministic runs: no token's place, and so no rounding, depends on another prompt.

The prefix is the tokens of the demonstrations, whatever else prompts share. A row holds one suffix, from its first column on; its
width is the next power of two of the suffix's length, and the width alone determines the number of rows per step.
"""

import collections
import dataclasses

import numpy as np

from knnprompt_jax.prompts import layout, packing

# Least columns of a row and tokens read per step, so that the blocks of matrix products divide all shapes.
SMALLEST = 16


def arrange(prompts: layout.Prompts) -> layout.Prompts:
    """Return the same prompts in groups of one prefix and one row width each."""
    head_P = np.array(prompts.demonstrations, np.int32)
    members = collections.defaultdict(list)
    for group in prompts.groups:
        for place, suffix in zip(group.index, group.suffixes, strict=True):
            tokens = np.concatenate([group.prefix_P, suffix])
            shared = len(head_P) * (len(tokens) > len(head_P) and np.array_equal(tokens[: len(head_P)], head_P))
            members[shared, _width(len(tokens) - shared)].append((place, tokens[shared:]))
    groups = []
    for (shared, _), rows in sorted(members.items()):
        index, suffixes = zip(*rows, strict=True)
        groups.append(layout.PromptGroup(head_P[:shared], suffixes, np.array(index)))
    return dataclasses.replace(prompts, groups=tuple(groups))


def shape(group: layout.PromptGroup, step_tokens: int) -> packing.PackShape:
    """Return the packing of an arranged group, with at most `step_tokens` tokens per step or a single row."""
    width = _width(len(group.suffixes[0]))
    rows = 1 << (max(1, step_tokens // width).bit_length() - 1)
    return packing.PackShape(packing.round_up(len(group.prefix_P), 64), width, rows, max(SMALLEST, rows), alone=True)


def _width(length: int) -> int:
    return max(SMALLEST, packing.next_power(length))
