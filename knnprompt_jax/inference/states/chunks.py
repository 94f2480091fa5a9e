"""Chunks of prompts: consecutive prompts of a set with their keys, arranged for packing.

In names of arrays, N counts prompts, and n the prompts of a chunk.
"""

import dataclasses
import hashlib
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from knnprompt_jax.common import parallel
from knnprompt_jax.inference import lm
from knnprompt_jax.inference.prompts import layout, packing
from knnprompt_jax.inference.states import cache

FORMAT = 3  # Version of cached rows: increase it whenever a pass computes different values.


class Chunk(NamedTuple):
    """Consecutive prompts of a set: their groups, and in order their numbers in the set, keys, and own tokens."""

    groups: tuple[layout.PromptGroup, ...]
    number_n: np.ndarray
    keys_n: np.ndarray
    lengths_n: np.ndarray


def build(
    model: lm.LanguageModel, prompts: layout.Prompts, chunk_tokens: tuple[int, int], short_prefixes: bool
) -> Iterator[Chunk]:
    """Yield the chunks of a set, in order.

    `chunk_tokens` are about the tokens of the first chunk and the maximum. Each chunk is twice as large as the one
    before, so that the devices start early. With `short_prefixes`, the prefix is the tokens of the demonstrations, and
    wide suffixes have groups of their own.
    """
    model_key = _model_key(model)
    demonstrations_P = np.array(prompts.demonstration_tokens, np.int32)
    for groups in _cut(prompts, *chunk_tokens):
        if model.deterministic:
            groups = packing.arrange_alone(groups, demonstrations_P)
        elif short_prefixes:
            groups = _shorten_prefixes(groups, demonstrations_P)
        number_n = np.concatenate([group.number_N for group in groups])
        order_n = np.argsort(number_n)
        lengths_n = np.concatenate([group.suffixes.lengths_N for group in groups])
        keys_n = make_keys(groups, model_key)
        yield Chunk(tuple(groups), number_n[order_n], keys_n[order_n], lengths_n[order_n])


def _shorten_prefixes(
    groups: Sequence[layout.PromptGroup], demonstrations_P: np.ndarray
) -> Sequence[layout.PromptGroup]:
    """Cut each prefix to the demonstrations, and separate suffixes that need wider rows.

    The prefix is then the same in every call, whatever else the prompts of one call share.
    """
    pieces = []
    for group in groups:
        short = group.shorten_prefix(packing.num_shared(group.prefix_P, demonstrations_P))
        is_wide_N = short.suffixes.lengths_N > packing.ROW_WIDTH
        pieces += [short.take(members) for members in map(np.flatnonzero, (~is_wide_N, is_wide_N)) if members.size]
    return pieces


def _cut(prompts: layout.Prompts, first: int, maximum: int) -> Iterator[Sequence[layout.PromptGroup]]:
    """Yield the groups of chunks of at most about `first`, 2 · `first`, … `maximum` tokens."""
    limit = first
    waiting: list[layout.PromptGroup] = []
    num_waiting = 0
    for block in prompts.blocks():
        for piece in _split(block.groups, limit):
            num_tokens = sum(len(group.suffixes.tokens_T) for group in piece)
            if waiting and num_waiting + num_tokens > limit:
                yield layout.join_groups(waiting)
                waiting = []
                num_waiting = 0
                limit = min(2 * limit, maximum)
            waiting += piece
            num_waiting += num_tokens
    if waiting:
        yield layout.join_groups(waiting)


def _split(groups: Sequence[layout.PromptGroup], max_tokens: int) -> list[list[layout.PromptGroup]]:
    """Split prompts, in order, into pieces of about equal numbers of tokens, at most about `max_tokens`."""
    number_n = np.concatenate([group.number_N for group in groups])
    lengths_n = np.concatenate([group.suffixes.lengths_N for group in groups])
    order_n = np.argsort(number_n)
    ends_n = np.cumsum(lengths_n[order_n])
    num_pieces = math.ceil(ends_n[-1] / max_tokens)
    piece_n = np.empty_like(order_n)
    piece_n[order_n] = (ends_n - 1) * num_pieces // ends_n[-1]
    pieces: list[list[layout.PromptGroup]] = [[] for _ in range(num_pieces)]
    by_group = np.split(piece_n, np.cumsum([len(group.number_N) for group in groups]))[:-1]
    for group, piece_N in zip(groups, by_group, strict=True):
        for piece in np.unique(piece_N):
            pieces[piece].append(group.take(np.flatnonzero(piece_N == piece)))
    return pieces


def make_keys(groups: Sequence[layout.PromptGroup], model_key: str) -> np.ndarray:
    """Return the SHA-256 of `model_key` and each prompt's tokens (32 bytes each), group by group."""
    digests = []
    for group in groups:
        prefix_digest = hashlib.sha256(model_key.encode() + b" " + np.asarray(group.prefix_P, np.int32).tobytes())
        content = group.suffixes.tokens_T.tobytes()
        for start, end in itertools.pairwise((4 * group.suffixes.offsets_N).tolist()):
            digest = prefix_digest.copy()
            digest.update(content[start:end])
            digests.append(digest.digest())
    return np.array(digests, cache.KEY_DTYPE)


def select(groups: Sequence[layout.PromptGroup], numbers: np.ndarray, num_prompts: int) -> list[layout.PromptGroup]:
    """Return the prompts with some numbers, numbered in their order."""
    position_N = np.full(num_prompts, -1)
    position_N[numbers] = np.arange(len(numbers))
    parts = [(group, position_N[group.number_N]) for group in groups]
    return [
        dataclasses.replace(group.take(np.flatnonzero(position_n >= 0)), number_N=position_n[position_n >= 0])
        for group, position_n in parts
        if (position_n >= 0).any()
    ]


def _model_key(model: lm.LanguageModel) -> str:
    """Return everything that a state depends on, except the tokens of its prompt, which show its truncation."""
    key = f"{FORMAT} states {model.fingerprint} {model.dtype} {model.deterministic}"
    if model.dtype != "float32":  # Other dtypes depend on the platform: CPUs compute in float32.
        key += f" {model.platform}"
    if model.deterministic:  # Results are bitwise equal only for the same number of devices per copy of the weights.
        key += f" {model.mesh.shape[parallel.MODEL]}"
    return key
