"""Pack suffixes into rows of one static shape: little padding, no duplicate tokens, one compilation.

A row of S tokens holds suffixes, mostly in the order of their tokens; any order is valid. Tokens with which a suffix
and the one before it begin are stored only once. So a row is a forest of tokens in depth-first order. Rows are dealt
to steps of B rows so that all steps have about the same number of outputs. The prefix is padded to the longest of the
groups that are packed into the same shape.

Example: the prefix has P = 2 tokens, and two suffixes are [7, 8, 9] and [7, 8, 4, 6]. They share the tokens 7 and 8, so
that one row of S = 8 tokens holds both in 5 columns:

    column     0  1  2  3  4  5  6  7
    tokens     7  8  4  6  9  0  0  0
    positions  2  3  4  5  4  0  0  0
    stops      5  5  4  4  5  0  0  0

The token in column c sees the prefix and each column c' ≤ c with c < stops[c']: itself and the earlier tokens of its
own suffix. Column 4 (the 9) sees columns 0, 1 and 4, because columns 2 and 3 stop at 4. The last tokens of the suffixes
are the outputs: `output_positions` are [3, 4], and the slots of the two suffixes are [1, 0].

A deterministic run puts a single suffix into each row (`arrange_alone`, `shape_alone`). No token's column depends on
another prompt then, and neither does its rounding. The prefix is only the tokens of the demonstrations, whatever else
prompts share. The row's width is the next power of two of the suffix's length and determines the rows of a step.
"""

import collections
import dataclasses
import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from knnprompt_jax.common import rounding
from knnprompt_jax.inference.prompts import layout

ROW_WIDTH = 128  # Tokens; wider rows pay for more masked attention, narrower rows share less.
LOOK_AHEAD = 512  # Candidate suffixes for the rest of a row.
SMALLEST_ALONE = 16  # Columns of a row and outputs of a step: blocks of matrix products divide all shapes.


@dataclasses.dataclass(frozen=True)
class PackShape:
    """The static shape of a step.

    Attributes:
        prefix: the number P of prefix tokens, padding included.
        width: the number S of tokens in a row.
        rows: the number B of rows.
        outputs: the number J of outputs. `pack` increases it for a group with more outputs in a step.
        alone: whether a row holds a single suffix.
    """

    prefix: int
    width: int
    rows: int
    outputs: int
    alone: bool = False


class Step(NamedTuple):
    """The arrays of one step, as the decoder reads them; an axis T before the others counts several steps.

    Attributes:
        tokens_BS: the packed tokens.
        stops_BS: for each token, the end of the columns that see it.
        positions_BS: the position of each token in its prompt.
        output_positions_J: the outputs, as flat indices into [B, S].
    """

    tokens_BS: Any
    stops_BS: Any
    positions_BS: Any
    output_positions_J: Any


# Maps a group to its shape.
ShapeOf = Callable[[layout.PromptGroup], PackShape]


@dataclasses.dataclass(frozen=True)
class PackedPrompts:
    """Prompts of one group as arrays of a `PackShape`, T steps.

    Attributes:
        shape: the static shape.
        prefix_P: the shared tokens; those from `prefix_length` on are padding.
        prefix_length: the number of shared tokens.
        tokens_TBS: the packed tokens; padding is 0.
        stops_TBS: for each token, the end of the columns that see it: its own column, and those of the tokens that
            follow it in some suffix; 0 for padding.
        positions_TBS: the position of each token in its prompt, the prefix included.
        output_positions_TJ: the outputs, which are the tokens after which the model predicts the next one, as flat
            indices into a step's [B, S].
        slot_N: the index of prompt i's output in the flattened [T, J]. If a prompt has several outputs, this is the
            last one's index, and the others precede it.
        lengths_T: each step's number of tokens.
    """

    shape: PackShape
    prefix_P: np.ndarray
    prefix_length: int
    tokens_TBS: np.ndarray
    stops_TBS: np.ndarray
    positions_TBS: np.ndarray
    output_positions_TJ: np.ndarray
    slot_N: np.ndarray
    lengths_T: np.ndarray

    @property
    def steps(self) -> Step:
        """The arrays of all steps."""
        return Step(self.tokens_TBS, self.stops_TBS, self.positions_TBS, self.output_positions_TJ)

    @property
    def num_steps(self) -> int:
        return len(self.tokens_TBS)

    @property
    def num_tokens(self) -> int:
        """The number of packed tokens; shared tokens count once, padding does not count."""
        return int(self.lengths_T.sum())


def choose_shape(groups: Sequence[layout.PromptGroup], step_tokens: int, shards: int = 1) -> PackShape:
    """Return one shape for all groups, with at most `step_tokens` tokens per step or a single row.

    It has up to a third more steps than necessary if that leaves fewer rows empty.
    """
    longest = max(len(suffix) for group in groups for suffix in group.suffixes)
    width = max(ROW_WIDTH, rounding.round_up(longest, 64))
    rows_by_group = [_rows(group, width) for group in groups]
    max_rows = math.ceil(max(len(rows) for rows in rows_by_group) / shards)
    rows = _rows_per_step(max_rows, max(1, step_tokens // width))
    outputs = max(
        _largest_num_outputs(group, _steps(group, group_rows, rows))
        for group, group_rows in zip(groups, rows_by_group, strict=True)
    )
    prefix = max(len(group.prefix_P) for group in groups)
    return PackShape(rounding.round_up(prefix, 64), width, rows, rounding.round_up(outputs, 8))


def _rows_per_step(num_rows: int, limit: int) -> int:
    """Return the rows per step, at most `limit`, that leave the fewest empty in up to a third more steps."""
    min_steps = math.ceil(num_rows / limit)
    candidates = range(min_steps, math.ceil(min_steps * 4 / 3) + 1)
    steps = min(candidates, key=lambda steps: steps * math.ceil(num_rows / steps))
    return math.ceil(num_rows / steps)


def max_outputs(group: layout.PromptGroup, width: int, rows: int) -> int:
    """Return the largest number of outputs of a step, for rows of this width and this many rows per step."""
    return _largest_num_outputs(group, _steps(group, _rows(group, width), rows))


def choose_shapes(groups: Sequence[layout.PromptGroup], step_tokens: int, shards: int) -> ShapeOf:
    """Choose one shape for the groups with a shared prefix and one for those without, one compilation each."""
    shapes = {}
    for has_prefix in (True, False):
        members = [group for group in groups if bool(len(group.prefix_P)) == has_prefix]
        if members:
            shapes[has_prefix] = choose_shape(members, step_tokens, shards)
    return lambda group: shapes[bool(len(group.prefix_P))]


def arrange_alone(prompts: layout.Prompts) -> layout.Prompts:
    """Return the same prompts in groups of one prefix and one row width each."""
    demonstrations_P = np.array(prompts.demonstration_tokens, np.int32)
    length = len(demonstrations_P)
    members = collections.defaultdict(list)
    for group in prompts.groups:
        for number, suffix in zip(group.number_N, group.suffixes, strict=True):
            tokens = np.concatenate([group.prefix_P, suffix])
            has_prefix = len(tokens) > length and np.array_equal(tokens[:length], demonstrations_P)
            shared = length if has_prefix else 0
            members[shared, _width_alone(len(tokens) - shared)].append((number, tokens[shared:]))
    groups = []
    for (shared, _), rows in sorted(members.items()):
        numbers, suffixes = zip(*rows, strict=True)
        groups.append(layout.PromptGroup(demonstrations_P[:shared], suffixes, np.array(numbers)))
    return dataclasses.replace(prompts, groups=tuple(groups))


def shape_alone(group: layout.PromptGroup, step_tokens: int) -> PackShape:
    """Return the shape of a group of `arrange_alone`, with at most `step_tokens` tokens per step or a single row."""
    width = _width_alone(len(group.suffixes[0]))
    rows = 1 << (max(1, step_tokens // width).bit_length() - 1)
    return PackShape(rounding.round_up(len(group.prefix_P), 64), width, rows, max(SMALLEST_ALONE, rows), alone=True)


def _width_alone(length: int) -> int:
    return max(SMALLEST_ALONE, rounding.next_power_of_two(length))


def pack(
    group: layout.PromptGroup, shape: PackShape, is_local: Callable[[int], bool] = lambda step: True
) -> PackedPrompts:
    """Pack a group, or a part of it, into a shape that was chosen for the group (`choose_shape`, `shape_alone`).

    A part may be denser than its group. Its steps then have more outputs than the shape, and the result has a shape of
    its own. Steps of other processes (for which `is_local` is false) have no tokens, but their prompts have slots.
    """
    rows = [[index] for index in range(len(group.suffixes))] if shape.alone else _rows(group, shape.width)
    steps = _steps(group, rows, shape.rows)
    outputs = max(shape.outputs, rounding.round_up(_largest_num_outputs(group, steps), 8))
    packed = _empty(group, dataclasses.replace(shape, outputs=outputs), len(steps))
    for step, step_rows in enumerate(steps):
        slot = step * outputs
        for row, indices in enumerate(step_rows):
            slot = _pack_row(packed, group, indices, step, row, slot, is_local(step))
    return packed


def _empty(group: layout.PromptGroup, shape: PackShape, num_steps: int) -> PackedPrompts:
    """Return the arrays of some steps, with the prefix only."""
    prefix_P = np.zeros(shape.prefix, np.int32)
    prefix_P[: len(group.prefix_P)] = group.prefix_P
    size = (num_steps, shape.rows, shape.width)
    return PackedPrompts(
        shape=shape,
        prefix_P=prefix_P,
        prefix_length=len(group.prefix_P),
        tokens_TBS=np.zeros(size, np.int32),
        stops_TBS=np.zeros(size, np.int32),
        positions_TBS=np.zeros(size, np.int32),
        output_positions_TJ=np.zeros((num_steps, shape.outputs), np.int32),
        slot_N=np.zeros(len(group.suffixes), np.int64),
        lengths_T=np.zeros(num_steps, np.int64),
    )


def _pack_row(
    packed: PackedPrompts,
    group: layout.PromptGroup,
    indices: list[int],
    step: int,
    row: int,
    slot: int,
    is_local: bool,
) -> int:
    """Write the suffixes of a row, if it `is_local`, and their outputs from `slot` on; return the next free slot.

    The tokens with which a suffix and the one before it begin have the same columns; their stops move on.
    """
    columns = np.zeros(0, int)
    previous = np.zeros(0, int)
    stop = 0
    for index in indices:
        suffix = group.suffixes[index]
        shared = num_shared(previous, suffix)
        start = stop
        stop = start + len(suffix) - shared
        columns = np.concatenate([columns[:shared], np.arange(start, stop)])
        if is_local:
            packed.tokens_TBS[step, row, columns] = suffix
            packed.stops_TBS[step, row, columns] = stop
            packed.positions_TBS[step, row, columns] = packed.prefix_length + np.arange(len(suffix))
        output_columns = columns[-_num_outputs(group, [index]) :]
        end = slot + len(output_columns)
        packed.output_positions_TJ.ravel()[slot:end] = row * packed.shape.width + output_columns
        packed.slot_N[index] = end - 1
        slot = end
        previous = suffix
    packed.lengths_T[step] += stop
    return slot


def _rows(group: layout.PromptGroup, width: int) -> list[list[int]]:
    """Return the indices of the suffixes of each row.

    Suffixes are sorted by their tokens, so that neighbours share long beginnings. A row takes suffixes in that order
    while they fit, and then, again and again, the one among the next `LOOK_AHEAD` that fills most of the rest.
    """
    order = sorted(range(len(group.suffixes)), key=lambda index: group.suffixes[index].tolist())
    suffixes = [group.suffixes[index] for index in order]
    lengths_N = np.array([len(suffix) for suffix in suffixes])
    shared_N = np.array([0] + [num_shared(*pair) for pair in itertools.pairwise(suffixes)])  # With the previous suffix.
    waiting_N = np.arange(len(order))
    rows = []
    while len(waiting_N):
        candidates = waiting_N[:LOOK_AHEAD]
        # Tokens that each candidate would add after the one before it; other rows have taken suffixes between them.
        added = lengths_N[candidates]
        added[1:] -= np.minimum.reduceat(shared_N[: candidates[-1] + 1], candidates[:-1] + 1)
        filled = np.cumsum(added)
        count = int(np.searchsorted(filled, width, side="right"))
        row = candidates[:count].tolist()
        room = width - filled[count - 1]
        candidates = candidates[count:]
        added = lengths_N[candidates] - _shared_with(row[-1], candidates, shared_N)
        while len(candidates) and added.min() <= room:
            choice = 0 if added[0] <= room else int(np.argmax(np.where(added <= room, added, -1)))
            row.append(candidates[choice])
            room -= added[choice]
            candidates = np.delete(candidates, choice)
            added = lengths_N[candidates] - _shared_with(row[-1], candidates, shared_N)
        waiting_N = np.concatenate([candidates, waiting_N[LOOK_AHEAD:]])
        rows.append([order[rank] for rank in row])
    return rows


def _shared_with(last: int, candidates: np.ndarray, shared_N: np.ndarray) -> np.ndarray:
    """Return the number of leading tokens that each candidate shares with `last`; both are ranks in sorted order.

    Two sorted suffixes share the minimum of what neighbours between them share (`shared_N`).
    """
    if not len(candidates):
        return candidates
    low = min(candidates[0], last)
    high = max(candidates[-1], last)
    before = np.minimum.accumulate(shared_N[low + 1 : last + 1][::-1])[::-1]
    after = np.minimum.accumulate(shared_N[last + 1 : high + 1])
    return np.concatenate([before, [0], after])[candidates - low]


def num_shared(first: np.ndarray, second: np.ndarray) -> int:
    """Return the length of the common prefix."""
    length = min(len(first), len(second))
    [differing] = (first[:length] != second[:length]).nonzero()
    return int(differing[0]) if len(differing) else length


def _num_outputs(group: layout.PromptGroup, members: list[int]) -> int:
    """Return the number of outputs of some of a group's prompts; by default each prompt has one."""
    return len(members) if group.num_outputs_N is None else int(group.num_outputs_N[members].sum())


def _steps(group: layout.PromptGroup, rows: Iterable[list[int]], per_step: int) -> list[list[list[int]]]:
    """Deal rows to steps of `per_step`: the row with the most outputs first, to the step with the fewest."""
    by_count = sorted(rows, key=lambda row: _num_outputs(group, row), reverse=True)
    steps: list[list[list[int]]] = [[] for _ in range(math.ceil(len(by_count) / per_step))]
    heap = [(0, step) for step in range(len(steps))]
    for row in by_count:
        count, step = heapq.heappop(heap)
        steps[step].append(row)
        if len(steps[step]) < per_step:
            heapq.heappush(heap, (count + _num_outputs(group, row), step))
    return steps


def _largest_num_outputs(group: layout.PromptGroup, steps: list[list[list[int]]]) -> int:
    """Return the largest number of outputs of a step."""
    return max(sum(_num_outputs(group, row) for row in step) for step in steps)
