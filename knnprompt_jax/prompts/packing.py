"""Suffixes → packed rows of one static shape: next to no padding, one compilation.

Suffixes go best-fit-decreasing into rows of S tokens, each with its own segment id; rows go to steps of B so that all steps
have about as many suffix ends. The prefix is padded to the run's longest.
"""

import bisect
import dataclasses
import heapq
import math
from collections.abc import Iterable, Sequence

import numpy as np

from knnprompt_jax.prompts import layout

ROW_WIDTH = 128  # Tokens; wider rows pay for more masked attention, narrower ones do not fit usual suffixes.


@dataclasses.dataclass(frozen=True)
class PackShape:
    """The static shape of a pass: P prefix tokens (padded), S tokens a row, B rows and at most J suffix ends a step."""

    prefix: int
    width: int
    rows: int
    ends: int


@dataclasses.dataclass(frozen=True)
class PackedPrompts:
    """Prompts of one group as arrays of a `PackShape`, T steps.

    `segments_TBS` numbers the suffixes of a row from 1 (0 is padding); `ends_TJ` are flat indices into a step's [B, S].
    Prompt i of the group comes out at `slot_N[i]` of the flattened [T, J].
    """

    shape: PackShape
    prefix_P: np.ndarray
    prefix_length: int
    tokens_TBS: np.ndarray
    segments_TBS: np.ndarray
    positions_TBS: np.ndarray
    ends_TJ: np.ndarray
    slot_N: np.ndarray

    @property
    def num_steps(self) -> int:
        return len(self.tokens_TBS)

    @property
    def num_tokens(self) -> int:
        """Suffix tokens, padding not counted."""
        return int(np.count_nonzero(self.segments_TBS))

    @property
    def fill(self) -> float:
        """Share of packed slots that hold a token."""
        return self.num_tokens / max(1, self.segments_TBS.size)


def choose_shape(groups: Sequence[layout.PromptGroup], step_tokens: int) -> PackShape:
    """One shape that serves all the groups, with about `step_tokens` tokens a step.

    Raises ValueError where there is nothing to pack.
    """
    lengths = [len(suffix) for group in groups for suffix in group.suffixes]
    if not lengths:
        raise ValueError("no prompts to pack")
    width = max(ROW_WIDTH, _round_up(max(lengths), 64))
    packed = [_rows(group, width) for group in groups]
    rows = min(max(1, step_tokens // width), max(len(rows) for rows in packed))
    ends = max(sum(map(len, step)) for row_lists in packed for step in _steps(row_lists, rows))
    prefix = max(len(group.prefix_P) for group in groups)
    return PackShape(_round_up(prefix, 64), width, rows, _round_up(ends, 8))


def pack(group: layout.PromptGroup, shape: PackShape) -> PackedPrompts:
    """Packs a group into the shape (which `choose_shape` made for this group among others)."""
    steps = _steps(_rows(group, shape.width), shape.rows)
    tokens = np.zeros((len(steps), shape.rows, shape.width), np.int32)
    segments, positions = np.zeros_like(tokens), np.zeros_like(tokens)
    ends = np.zeros((len(steps), shape.ends), np.int32)
    slots = np.zeros(len(group.suffixes), np.int64)
    for t, step in enumerate(steps):
        end = 0
        for b, row in enumerate(step):
            start = 0
            for segment, index in enumerate(row, 1):
                suffix = group.suffixes[index]
                cells = (t, b, slice(start, start + len(suffix)))
                tokens[cells], segments[cells] = suffix, segment
                positions[cells] = len(group.prefix_P) + np.arange(len(suffix))
                start += len(suffix)
                ends[t, end] = b * shape.width + start - 1
                slots[index] = t * shape.ends + end
                end += 1
    prefix = np.zeros(shape.prefix, np.int32)
    prefix[: len(group.prefix_P)] = group.prefix_P
    return PackedPrompts(shape, prefix, len(group.prefix_P), tokens, segments, positions, ends, slots)


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


def _steps(rows: Iterable[list[int]], per_step: int) -> list[list[list[int]]]:
    """Rows dealt to steps of `per_step`, the row with most suffixes first, to the step with fewest that has room."""
    by_count = sorted(rows, key=len, reverse=True)
    steps: list[list[list[int]]] = [[] for _ in range(math.ceil(len(by_count) / per_step))]
    heap = [(0, step) for step in range(len(steps))]
    for row in by_count:
        count, step = heapq.heappop(heap)
        steps[step].append(row)
        if len(steps[step]) < per_step:
            heapq.heappush(heap, (count + len(row), step))
    return steps


def _round_up(number: int, multiple: int) -> int:
    return math.ceil(number / multiple) * multiple
