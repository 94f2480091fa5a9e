"""Suffixes → packed rows of one static shape: next to no padding, one compilation.

Suffixes go best-fit-decreasing into rows of S tokens, each with its own segment id; rows go to steps of B so that all steps
have about as many suffix ends. The prefix is padded to the run's longest.
"""

import bisect
import dataclasses
import heapq
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from knnprompt_jax.prompts import layout

ROW_WIDTH = 128  # Tokens; wider rows pay for more masked attention, narrower ones do not fit usual suffixes.


@dataclasses.dataclass(frozen=True)
class PackShape:
    """The static shape of a pass: P prefix tokens (padded), S tokens a row, B rows and at most J tokens read a step."""

    prefix: int
    width: int
    rows: int
    ends: int


@dataclasses.dataclass(frozen=True)
class PackedPrompts:
    """Prompts of one group as arrays of a `PackShape`, T steps.

    `segments_TBS` numbers the suffixes of a row from 1 (0 is padding); `ends_TJ` are flat indices into a step's [B, S].
    Prompt i of the group comes out at `slot_N[i]` of the flattened [T, J]; where several of its tokens are read, that is
    the last, and the others come out in the slots before it. `lengths_T` counts each step's suffix tokens.
    """

    shape: PackShape
    prefix_P: np.ndarray
    prefix_length: int
    tokens_TBS: np.ndarray
    segments_TBS: np.ndarray
    positions_TBS: np.ndarray
    ends_TJ: np.ndarray
    slot_N: np.ndarray
    lengths_T: np.ndarray

    @property
    def num_steps(self) -> int:
        return len(self.tokens_TBS)

    @property
    def num_tokens(self) -> int:
        """Suffix tokens, padding not counted."""
        return int(self.lengths_T.sum())

    @property
    def fill(self) -> float:
        """Share of packed slots that hold a token."""
        return self.num_tokens / max(1, self.segments_TBS.size)


def choose_shape(groups: Sequence[layout.PromptGroup], step_tokens: int, shards: int = 1) -> PackShape:
    """One shape that serves all the groups, with about `step_tokens` tokens a step: fewer where not every shard would get a step.

    Raises ValueError where there is nothing to pack.
    """
    lengths = [len(suffix) for group in groups for suffix in group.suffixes]
    if not lengths:
        raise ValueError("no prompts to pack")
    width = max(ROW_WIDTH, _round_up(max(lengths), 64))
    packed = [_rows(group, width) for group in groups]
    rows = min(max(1, step_tokens // width), math.ceil(max(len(rows) for rows in packed) / shards))
    ends = max(
        sum(_num_reads(row, reads_N) for row in step)
        for row_lists, reads_N in zip(packed, map(_reads, groups), strict=True)
        for step in _steps(row_lists, rows, reads_N)
    )
    prefix = max(len(group.prefix_P) for group in groups)
    return PackShape(_round_up(prefix, 64), width, rows, _round_up(ends, 8))


def choose_shapes(groups: Iterable[layout.PromptGroup], step_tokens: int, shards: int = 1) -> dict[bool, PackShape]:
    """One shape for the groups with a shared prefix (True) and one for those without (False): a compilation each."""
    groups = list(groups)
    kinds = {shared: [group for group in groups if bool(len(group.prefix_P)) == shared] for shared in (True, False)}
    return {shared: choose_shape(members, step_tokens, shards) for shared, members in kinds.items() if members}


def pack(
    group: layout.PromptGroup, shape: PackShape, is_own: Callable[[int], bool] = lambda step: True
) -> PackedPrompts:
    """Packs a group into the shape (which `choose_shape` made for this group among others).

    Steps that are not this process's own stay empty; where their prompts come out is known all the same.
    """
    reads_N = _reads(group)
    steps = _steps(_rows(group, shape.width), shape.rows, reads_N)
    tokens = np.zeros((len(steps), shape.rows, shape.width), np.int32)
    segments, positions = np.zeros_like(tokens), np.zeros_like(tokens)
    ends = np.zeros((len(steps), shape.ends), np.int32)
    slots = np.zeros(len(group.suffixes), np.int64)
    lengths = np.zeros(len(steps), np.int64)
    for t, step in enumerate(steps):
        end = 0
        for b, row in enumerate(step):
            start = 0
            for segment, index in enumerate(row, 1):
                suffix = group.suffixes[index]
                if is_own(t):
                    cells = (t, b, slice(start, start + len(suffix)))
                    tokens[cells], segments[cells] = suffix, segment
                    positions[cells] = len(group.prefix_P) + np.arange(len(suffix))
                start += len(suffix)
                read = reads_N[index]
                ends[t, end : end + read] = b * shape.width + np.arange(start - read, start)
                end += read
                slots[index] = t * shape.ends + end - 1
            lengths[t] += start
    prefix = np.zeros(shape.prefix, np.int32)
    prefix[: len(group.prefix_P)] = group.prefix_P
    return PackedPrompts(shape, prefix, len(group.prefix_P), tokens, segments, positions, ends, slots, lengths)


def _rows(group: layout.PromptGroup, width: int) -> list[list[int]]:
    """Indices of suffixes, row by row: the longest first, each into the fullest row that still takes it."""
    rows: list[list[int]] = []
    open_rows: dict[int, list[int]] = {}  # Free tokens → rows with as many.
    free: list[int] = []  # The keys of `open_rows`, sorted.
    lengths = np.array([len(suffix) for suffix in group.suffixes])
    for index in np.argsort(-lengths, kind="stable"):
        length = int(lengths[index])
        at = bisect.bisect_left(free, length)
        if at == len(free):
            row, room = len(rows), width
            rows.append([])
        else:
            room = free[at]
            row = open_rows[room].pop()
            if not open_rows[room]:
                del open_rows[room], free[at]
        rows[row].append(int(index))
        left = room - length
        if left not in open_rows:
            open_rows[left] = []
            bisect.insort(free, left)
        open_rows[left].append(row)
    return rows


def _reads(group: layout.PromptGroup) -> np.ndarray:
    return np.ones(len(group.suffixes), int) if group.reads_N is None else group.reads_N


def _num_reads(row: list[int], reads_N: np.ndarray) -> int:
    return int(reads_N[row].sum())


def _steps(rows: Iterable[list[int]], per_step: int, reads_N: np.ndarray) -> list[list[list[int]]]:
    """Rows dealt to steps of `per_step`, the row with most tokens to read first, to the step with fewest that has room."""
    by_count = sorted(rows, key=lambda row: _num_reads(row, reads_N), reverse=True)
    steps: list[list[list[int]]] = [[] for _ in range(math.ceil(len(by_count) / per_step))]
    heap = [(0, step) for step in range(len(steps))]
    for row in by_count:
        count, step = heapq.heappop(heap)
        steps[step].append(row)
        if len(steps[step]) < per_step:
            heapq.heappush(heap, (count + _num_reads(row, reads_N), step))
    return steps


def _round_up(number: int, multiple: int) -> int:
    return math.ceil(number / multiple) * multiple
