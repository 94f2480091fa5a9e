"""Suffixes packed into rows of one static shape: almost no padding, no duplicate tokens, one compilation.

Suffixes go into rows of S tokens in the order of their tokens, and tokens that neighbours in a row share at the start are packed
once: a row is a forest of tokens in depth-first order. Rows go to steps of B so that all steps read about as many tokens.
The prefix is padded to the run's longest.

In deterministic runs each row holds one suffix (`arrange_alone`, `shape_alone`): no token's place, and so no rounding,
depends on another prompt. The prefix is then the tokens of the demonstrations, whatever else prompts share. The row's width is
the next power of two of the suffix's length, and determines the number of rows per step.

`pad_sequences` and `batches` serve sentence encoders and fine-tuned classifiers, which read whole sequences, padded on the right.
"""

import collections
import dataclasses
import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from knnprompt_jax import rounding
from knnprompt_jax.prompts import layout

ROW_WIDTH = 128  # Tokens; wider rows pay for more masked attention, narrower rows share less.
LOOK_AHEAD = 512  # Candidate suffixes for the rest of a row.
SMALLEST_WIDTH = 32
SMALLEST_ALONE = 16  # Columns and outputs of a row by itself, so that the blocks of matrix products divide all shapes.


@dataclasses.dataclass(frozen=True)
class PackShape:
    """The static shape of a pass: P prefix tokens (padded), S tokens per row, B rows and J tokens read per step.

    `pack` raises J where a group needs more. With `alone` a row holds a single suffix.
    """

    prefix: int
    width: int
    rows: int
    outputs: int
    alone: bool = False


# Returns the packing of a group.
ShapeOf = Callable[[layout.PromptGroup], PackShape]


@dataclasses.dataclass(frozen=True)
class PackedPrompts:
    """Prompts of one group as arrays of a `PackShape`, T steps.

    Attributes:
      stops_TBS: for each token, the end of the columns that may read it: its own, and those of tokens that follow it in some
        suffix; 0 for padding.
      positions_TBS: the place of a token in its prompt, the prefix included.
      output_positions_TJ: the tokens after which the model predicts the next one, as flat indices into a step's [B, S].
      slot_N: the slot of prompt i of the group in the flattened [T, J]; if several of its tokens are read, this is the last one's,
        and the others precede it.
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
    packed = [_rows(group, width) for group in groups]
    most = math.ceil(max(len(rows) for rows in packed) / shards)
    fewest = math.ceil(most / max(1, step_tokens // width))
    candidates = range(fewest, math.ceil(fewest * 4 / 3) + 1)
    rows = math.ceil(most / min(candidates, key=lambda steps: steps * math.ceil(most / steps)))
    outputs = max(
        _max_outputs(group, _steps(group, members, rows)) for group, members in zip(groups, packed, strict=True)
    )
    prefix = max(len(group.prefix_P) for group in groups)
    return PackShape(rounding.round_up(prefix, 64), width, rows, rounding.round_up(outputs, 8))


def max_outputs(group: layout.PromptGroup, width: int, rows: int) -> int:
    """Return the largest number of tokens read per step, for rows of this width and this many rows per step."""
    return _max_outputs(group, _steps(group, _rows(group, width), rows))


def choose_shapes(groups: Sequence[layout.PromptGroup], step_tokens: int, shards: int) -> ShapeOf:
    """Choose one shape for the groups with a shared prefix and one for those without, one compilation each."""
    kinds = {shared: [group for group in groups if bool(len(group.prefix_P)) == shared] for shared in (True, False)}
    shapes = {shared: choose_shape(members, step_tokens, shards) for shared, members in kinds.items() if members}
    return lambda group: shapes[bool(len(group.prefix_P))]


def arrange_alone(prompts: layout.Prompts) -> layout.Prompts:
    """Return the same prompts in groups of one prefix and one row width each."""
    head_P = np.array(prompts.demonstrations, np.int32)
    members = collections.defaultdict(list)
    for group in prompts.groups:
        for place, suffix in zip(group.index, group.suffixes, strict=True):
            tokens = np.concatenate([group.prefix_P, suffix])
            shared = len(head_P) * (len(tokens) > len(head_P) and np.array_equal(tokens[: len(head_P)], head_P))
            members[shared, _width_alone(len(tokens) - shared)].append((place, tokens[shared:]))
    groups = []
    for (shared, _), rows in sorted(members.items()):
        index, suffixes = zip(*rows, strict=True)
        groups.append(layout.PromptGroup(head_P[:shared], suffixes, np.array(index)))
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
    """Pack a group, or a part of it, into a shape that `choose_shape` or `shape_alone` made for the group.

    A part may be denser than its group; its steps then read more tokens than the shape says. The steps of other processes
    stay empty, but their prompts have slots.
    """
    rows = [[index] for index in range(len(group.suffixes))] if shape.alone else _rows(group, shape.width)
    steps = _steps(group, rows, shape.rows)
    shape = dataclasses.replace(shape, outputs=max(shape.outputs, rounding.round_up(_max_outputs(group, steps), 8)))
    tokens = np.zeros((len(steps), shape.rows, shape.width), np.int32)
    stops, positions = np.zeros_like(tokens), np.zeros_like(tokens)
    read_positions = np.zeros((len(steps), shape.outputs), np.int32)
    slots = np.zeros(len(group.suffixes), np.int64)
    lengths = np.zeros(len(steps), np.int64)
    for t, step in enumerate(steps):
        slot = t * shape.outputs
        for b, row in enumerate(step):
            stop, columns, last = 0, np.zeros(0, int), np.zeros(0, int)
            for index in row:
                suffix = group.suffixes[index]
                shared = num_shared(last, suffix)
                start, stop, last = stop, stop + len(suffix) - shared, suffix
                columns = np.concatenate([columns[:shared], np.arange(start, stop)])
                if is_local(t):
                    tokens[t, b, columns], stops[t, b, columns] = suffix, stop
                    positions[t, b, columns] = len(group.prefix_P) + np.arange(len(suffix))
                read_columns, first = columns[-_num_outputs(group, [index]) :], slot
                slot += len(read_columns)
                read_positions.ravel()[first:slot] = b * shape.width + read_columns
                slots[index] = slot - 1
            lengths[t] += stop
    prefix = np.zeros(shape.prefix, np.int32)
    prefix[: len(group.prefix_P)] = group.prefix_P
    return PackedPrompts(shape, prefix, len(group.prefix_P), tokens, stops, positions, read_positions, slots, lengths)


def _rows(group: layout.PromptGroup, width: int) -> list[list[int]]:
    """Return indices of suffixes, row by row, each row in the order of their tokens, so that neighbours share long beginnings.

    A row takes the next suffix in that order while it fits, then the later candidate that fills most of the rest.
    """
    order = sorted(range(len(group.suffixes)), key=lambda index: group.suffixes[index].tolist())
    suffixes = [group.suffixes[index] for index in order]
    lengths_N = np.array([len(suffix) for suffix in suffixes])
    shared_N = np.array([0] + [num_shared(*pair) for pair in itertools.pairwise(suffixes)])  # With the previous suffix.
    waiting_N = np.arange(len(order))
    rows = []
    while len(waiting_N):
        near, room = waiting_N[:LOOK_AHEAD], width
        added = lengths_N[near]  # Tokens that each candidate would add to the row.
        row: list[int] = []
        while len(near) and added.min() <= room:
            choice = 0 if added[0] <= room else int(np.argmax(np.where(added <= room, added, -1)))
            room -= added[choice]
            row.append(last := near[choice])
            near = np.delete(near, choice)
            added = lengths_N[near] - _shared_with(last, near, shared_N)
        waiting_N = np.concatenate([near, waiting_N[LOOK_AHEAD:]])
        rows.append([order[index] for index in row])
    return rows


def _shared_with(last: int, near: np.ndarray, shared_N: np.ndarray) -> np.ndarray:
    """Return the number of tokens that the sorted suffix `last` shares with others: the least that neighbours in between share."""
    if not len(near):
        return near
    low, high = min(near[0], last), max(near[-1], last)
    before = np.minimum.accumulate(shared_N[low + 1 : last + 1][::-1])[::-1]
    after = np.minimum.accumulate(shared_N[last + 1 : high + 1])
    return np.concatenate([before, [0], after])[near - low]


def num_shared(first: np.ndarray, second: np.ndarray) -> int:
    """Return the length of the common prefix."""
    length = min(len(first), len(second))
    differing = np.flatnonzero(first[:length] != second[:length])
    return int(differing[0]) if len(differing) else length


def _num_outputs(group: layout.PromptGroup, members: list[int]) -> int:
    return len(members) if group.num_outputs_N is None else int(group.num_outputs_N[members].sum())


def _steps(group: layout.PromptGroup, rows: Iterable[list[int]], per_step: int) -> list[list[list[int]]]:
    """Deal rows to steps of `per_step`: the row with most tokens to read first, to the step with fewest that has room."""
    by_count = sorted(rows, key=lambda row: _num_outputs(group, row), reverse=True)
    steps: list[list[list[int]]] = [[] for _ in range(math.ceil(len(by_count) / per_step))]
    heap = [(0, step) for step in range(len(steps))]
    for row in by_count:
        count, step = heapq.heappop(heap)
        steps[step].append(row)
        if len(steps[step]) < per_step:
            heapq.heappush(heap, (count + _num_outputs(group, row), step))
    return steps


def _max_outputs(group: layout.PromptGroup, steps: list[list[list[int]]]) -> int:
    return max(sum(_num_outputs(group, row) for row in step) for step in steps)


def pad_sequences(sequences: Sequence[Sequence[int]], rows: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return tokens [rows, width] and lengths [rows] of at most `rows` sequences; each unused row has one token, 0."""
    tokens_BT, lengths_B = np.zeros((rows, width), np.int32), np.ones(rows, np.int32)
    for row, sequence in enumerate(sequences):
        tokens_BT[row, : len(sequence)], lengths_B[row] = sequence, len(sequence)
    return tokens_BT, lengths_B


def batches(lengths_N: np.ndarray, rows: int, longest: int) -> Iterator[tuple[np.ndarray, int, int]]:
    """Yield the sequences of each batch as (indices, rows, width).

    Widths are powers of two from 32 up to `longest`, so that a few shapes serve any number of texts. A batch of the longest has
    `rows` rows; narrower batches have proportionally more.
    """
    widths_N = np.minimum(longest, np.maximum(SMALLEST_WIDTH, 2 ** np.ceil(np.log2(lengths_N)).astype(int)))
    for width in np.unique(widths_N).tolist():
        members, size = np.flatnonzero(widths_N == width), rows * (longest // width)
        for start in range(0, len(members), size):
            yield members[start : start + size], size, width
