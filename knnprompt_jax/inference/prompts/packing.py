"""Pack suffixes into rows of one static shape: little padding, no duplicate tokens, one compilation.

A row of S tokens holds suffixes, mostly in the order of their tokens; any order is valid. Tokens with which a suffix
and the one before it begin are stored only once. So a row is a forest of tokens in depth-first order. Each data shard
packs its own part of the prompts. Its rows are distributed over steps of B rows so that all steps have about the same
number of outputs. The prefix is padded to the longest of the groups that are packed into the same shape.

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
import itertools
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from knnprompt_jax.common import parallel
from knnprompt_jax.inference.prompts import layout

ROW_WIDTH = 128  # Tokens; wider rows pay for more masked attention, narrower rows share less.
LOOK_AHEAD = 96  # Candidate suffixes for the rest of a row.
SMALLEST_ALONE = 16  # Columns of a row and outputs of a step: blocks of matrix products divide all shapes.


@dataclasses.dataclass(frozen=True)
class PackShape:
    """The static shape of a step of one data shard.

    Attributes:
        prefix: the number P of prefix tokens, padding included.
        width: the number S of tokens in a row.
        rows: the number B of rows.
        outputs: the minimum number J of outputs; `pack` may return a shape with more.
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
        stops_BS: for each token, the end of the columns that see it: its own column, and those of the tokens that
            follow it in some suffix.
        positions_BS: the position of each token in its prompt, the prefix included.
        output_positions_J: the outputs, which are the tokens after which the model predicts the next one, as flat
            indices into [B, S].
    """

    tokens_BS: Any
    stops_BS: Any
    positions_BS: Any
    output_positions_J: Any


# Maps a group to its shape.
ShapeOf = Callable[[layout.PromptGroup], PackShape]


@dataclasses.dataclass(frozen=True)
class PackedPrompts:
    """Prompts of one group as arrays of a `PackShape`: T steps for each of D data shards.

    Attributes:
        shape: the static shape.
        prefix_P: the shared tokens; those from `prefix_length` on are padding.
        prefix_length: the number of shared tokens.
        steps: the arrays of all steps, [T, D, …]; tokens and stops of padding are 0.
        shard_N: the data shard of each prompt; the prompts of a shard follow one another.
        slot_N: the index of each prompt's output among its shard's [T, J]. If a prompt has several outputs, this is
            the last one's index, and the others precede it. 0 for prompts of shards that are not packed here.
        lengths_TD: each step's number of tokens.
    """

    shape: PackShape
    prefix_P: np.ndarray
    prefix_length: int
    steps: Step
    shard_N: np.ndarray
    slot_N: np.ndarray
    lengths_TD: np.ndarray

    @property
    def num_steps(self) -> int:
        """The number T of steps of each shard."""
        return len(self.lengths_TD)

    @property
    def num_tokens(self) -> int:
        """The number of packed tokens; shared tokens count once, padding does not count."""
        return int(self.lengths_TD.sum())

    @property
    def number_in_shard_N(self) -> np.ndarray:
        """The number of each prompt among those of its shard."""
        return np.arange(len(self.shard_N)) - np.searchsorted(self.shard_N, self.shard_N)

    @property
    def flat_slot_N(self) -> np.ndarray:
        """The index of each prompt's output among those of all shards, [T, D, J]."""
        step_N, output_N = np.divmod(self.slot_N, self.shape.outputs)
        return (step_N * self.lengths_TD.shape[1] + self.shard_N) * self.shape.outputs + output_N


class FilledRows(NamedTuple):
    """Suffixes in rows, one row after the other.

    Attributes:
        index_N: the index of each suffix in its group.
        shared_N: the number of leading tokens that each shares with the suffix before it in its row.
        row_N: the row of each suffix.
    """

    index_N: np.ndarray
    shared_N: np.ndarray
    row_N: np.ndarray

    @property
    def num_rows(self) -> int:
        return int(self.row_N[-1]) + 1 if len(self.row_N) else 0


def choose_shape(
    groups: Sequence[layout.PromptGroup], step_tokens: int, shards: int = 1, least: PackShape | None = None
) -> PackShape:
    """Return one shape for all groups, with at most `step_tokens` tokens per step or a single row.

    It has up to a third more steps than necessary if that leaves fewer rows empty. Its prefix and width are at least
    those of `least`.
    """
    least = least or PackShape(0, ROW_WIDTH, 1, 8)
    width = max(least.width, parallel.round_up(max(group.longest for group in groups), 64))
    filled = _fill(groups, shards, width)
    rows = _rows_per_step(max(rows.num_rows for _, rows in filled), max(1, step_tokens // width))
    outputs = parallel.round_up(max(max_outputs(part, part_rows, rows) for part, part_rows in filled), 8)
    prefix = parallel.round_up(max(len(group.prefix_P) for group in groups), 64)
    return PackShape(max(least.prefix, prefix), width, rows, outputs)


def choose_common_shape(groups: Sequence[layout.PromptGroup], step_tokens: int, shards: int, context: int) -> PackShape:
    """Choose from few shapes, so that calls of about the same size share their programs; `context` bounds a prompt."""
    prefix = max(len(group.prefix_P) for group in groups)
    width = max(ROW_WIDTH, parallel.next_power_of_two(max(group.longest for group in groups)))
    if width > ROW_WIDTH:
        width = min(width, parallel.round_up(context - min(len(group.prefix_P) for group in groups), 64))
    filled = _fill(groups, shards, width)
    limit = max(1, step_tokens // width)
    rows = _rows_per_step(max(rows.num_rows for _, rows in filled), limit)
    rows = min(parallel.next_power_of_two(rows), limit)
    outputs = _common_size(max(max_outputs(part, part_rows, rows) for part, part_rows in filled), 32)
    return PackShape(parallel.round_up(prefix, 64), width, rows, outputs)


def _fill(
    groups: Sequence[layout.PromptGroup], shards: int, width: int
) -> list[tuple[layout.PromptGroup, "FilledRows"]]:
    """Return the part of each group and data shard with its rows."""
    return [(part, fill_rows(part, width)) for group in groups for part in split(group, shards)]


def _common_size(number: int, least: int) -> int:
    """Round up to one of at most 8 sizes per power of two, multiples of `least`."""
    return parallel.round_up(number, max(least, parallel.next_power_of_two(number) // 8))


def _rows_per_step(num_rows: int, limit: int) -> int:
    """Return the rows per step, at most `limit`, that leave the fewest empty in up to a third more steps."""
    min_steps = math.ceil(num_rows / limit)
    candidates = range(min_steps, math.ceil(min_steps * 4 / 3) + 1)
    steps = min(candidates, key=lambda steps: steps * math.ceil(num_rows / steps))
    return math.ceil(num_rows / steps)


def choose_shapes(groups: Sequence[layout.PromptGroup], step_tokens: int, shards: int) -> ShapeOf:
    """Choose one shape for the groups with a shared prefix and one for those without, one compilation each."""
    shapes = {}
    for has_prefix in {bool(len(group.prefix_P)) for group in groups}:
        members = [group for group in groups if bool(len(group.prefix_P)) == has_prefix]
        shapes[has_prefix] = choose_shape(members, step_tokens, shards)
    return lambda group: shapes[bool(len(group.prefix_P))]


def split(group: layout.PromptGroup, shards: int) -> list[layout.PromptGroup]:
    """Split a group into consecutive parts of about equal numbers of tokens, one for each data shard."""
    ends_N = group.suffixes.offsets_N[1:]
    bounds = np.searchsorted(ends_N, ends_N[-1] * np.arange(shards + 1) // shards, side="right")
    return [group.take(np.arange(*bounds[shard : shard + 2])) for shard in range(shards)]


def arrange_alone(groups: Sequence[layout.PromptGroup], demonstrations_P: np.ndarray) -> list[layout.PromptGroup]:
    """Return the same prompts in groups of one prefix (the demonstrations or nothing) and one row width each."""
    members = collections.defaultdict(list)
    for group in groups:
        whole = group.shorten_prefix(0)
        for number, tokens in zip(whole.number_N, whole.suffixes, strict=True):
            length = len(demonstrations_P)
            has_prefix = len(tokens) > length and np.array_equal(tokens[:length], demonstrations_P)
            shared = length if has_prefix else 0
            members[shared, _width_alone(len(tokens) - shared)].append((number, tokens[shared:]))
    arranged = []
    for (shared, _), rows in sorted(members.items()):
        numbers, suffixes = zip(*rows, strict=True)
        group = layout.PromptGroup(demonstrations_P[:shared], layout.TokenRows.of(suffixes), np.array(numbers))
        arranged.append(group)
    return arranged


def shape_alone(group: layout.PromptGroup, step_tokens: int) -> PackShape:
    """Return the shape of a group of `arrange_alone`, with at most `step_tokens` tokens per step or a single row."""
    width = _width_alone(group.longest)
    rows = 1 << (max(1, step_tokens // width).bit_length() - 1)
    return PackShape(parallel.round_up(len(group.prefix_P), 64), width, rows, max(SMALLEST_ALONE, rows), alone=True)


def _width_alone(length: int) -> int:
    return max(SMALLEST_ALONE, parallel.next_power_of_two(length))


def pack(
    group: layout.PromptGroup,
    shape: PackShape,
    shards: int = 1,
    local: Collection[int] | None = None,
    agree: Callable[[Sequence[int]], Sequence[int]] = lambda numbers: numbers,
) -> PackedPrompts:
    """Pack a group, or a part of it, into a shape that was chosen for the group (`choose_shape`, `shape_alone`).

    A part may be denser than its group. Its steps then have more outputs than the shape, and the result has a shape of
    its own.

    Args:
        shards: the number D of data shards.
        local: the data shards to pack, by default all; the others are left empty.
        agree: returns the largest numbers of all processes, because all run the same steps.
    """
    groups = split(group, shards)
    local = range(shards) if local is None else local
    rows_by_shard = {
        shard: _one_per_row(groups[shard]) if shape.alone else fill_rows(groups[shard], shape.width) for shard in local
    }
    steps = max(math.ceil(rows.num_rows / shape.rows) for rows in rows_by_shard.values())
    outputs = max(max_outputs(groups[shard], rows, shape.rows) for shard, rows in rows_by_shard.items())
    steps, outputs = agree([steps, max(shape.outputs, _common_size(outputs, 8))])
    packed = _empty(group, dataclasses.replace(shape, outputs=outputs), steps, [len(each.suffixes) for each in groups])
    for shard, rows in rows_by_shard.items():
        _write_shard(packed, shard, groups[shard], rows)
    return packed


def _empty(group: layout.PromptGroup, shape: PackShape, num_steps: int, counts: Sequence[int]) -> PackedPrompts:
    """Return the arrays of some steps, with the prefix only; `counts` has the number of prompts of each shard."""
    prefix_P = np.zeros(shape.prefix, np.int32)
    prefix_P[: len(group.prefix_P)] = group.prefix_P
    size = (num_steps, len(counts), shape.rows, shape.width)
    return PackedPrompts(
        shape=shape,
        prefix_P=prefix_P,
        prefix_length=len(group.prefix_P),
        steps=Step(*(np.zeros(each, np.int32) for each in (size, size, size, (*size[:2], shape.outputs)))),
        shard_N=np.repeat(np.arange(len(counts)), counts),
        slot_N=np.zeros(len(group.suffixes), np.int64),
        lengths_TD=np.zeros((num_steps, len(counts)), np.int64),
    )


def _write_shard(packed: PackedPrompts, shard: int, group: layout.PromptGroup, rows: FilledRows) -> None:
    """Write the suffixes of a shard into its steps.

    In names of arrays, n counts suffixes, and t the tokens of all suffixes, shared tokens included, row by row.
    """
    num_steps, shards = packed.lengths_TD.shape
    shape = packed.shape
    step_R, row_in_step_R = _distribute(_outputs_per_row(group, rows), num_steps)
    order_n = np.argsort((step_R * shape.rows + row_in_step_R)[rows.row_N], kind="stable")
    index_n, shared_n, row_n = (array_N[order_n] for array_N in rows)
    step_n = step_R[row_n]
    row_start_n = (step_n * shards + shard) * shape.rows + row_in_step_R[row_n]
    lengths_n = group.suffixes.lengths_N[index_n]
    stop_n = _sums_within(lengths_n - shared_n, row_n)
    depth_t = layout.spans(np.zeros_like(lengths_n), lengths_n)
    column_t = (np.repeat(stop_n - lengths_n, lengths_n) + depth_t)[_first_owner(shared_n, lengths_n, depth_t)]
    flat_t = np.repeat(row_start_n * shape.width, lengths_n) + column_t
    tokens_t = group.suffixes.tokens_T[layout.spans(group.suffixes.offsets_N[index_n], lengths_n)]
    packed.steps.tokens_BS.reshape(-1)[flat_t] = tokens_t
    packed.steps.positions_BS.reshape(-1)[flat_t] = packed.prefix_length + depth_t
    packed.steps.stops_BS.reshape(-1)[flat_t] = np.repeat(stop_n, lengths_n)  # The last suffix with a token counts.
    packed.lengths_TD[:, shard] = np.bincount(step_n, lengths_n - shared_n, num_steps)
    outputs_n = _num_outputs(group)[index_n]
    end_n = _sums_within(outputs_n, step_n)  # The end of each suffix's outputs in its step.
    output_t = layout.spans(np.cumsum(lengths_n) - outputs_n, outputs_n)
    output_positions = np.repeat(row_in_step_R[row_n] * shape.width, outputs_n) + column_t[output_t]
    slots = layout.spans(end_n - outputs_n, outputs_n)
    packed.steps.output_positions_J[np.repeat(step_n, outputs_n), shard, slots] = output_positions
    [members] = np.nonzero(packed.shard_N == shard)
    packed.slot_N[members[index_n]] = step_n * shape.outputs + end_n - 1


def _first_owner(shared_n: np.ndarray, lengths_n: np.ndarray, depth_t: np.ndarray) -> np.ndarray:
    """Return, for each token of each suffix, the index of the same token in the first suffix that shares it."""
    is_shared_t = depth_t < np.repeat(shared_n, lengths_n)
    # The suffix before has a shared token at the same depth, and may share it with the one before that.
    previous_length_n = np.concatenate([lengths_n[:1], lengths_n[:-1]])
    owner_t = np.arange(len(depth_t)) - np.where(is_shared_t, np.repeat(previous_length_n, lengths_n), 0)
    while is_shared_t[owner_t].any():
        owner_t = owner_t[owner_t]
    return owner_t


def _sums_within(numbers_n: np.ndarray, run_n: np.ndarray) -> np.ndarray:
    """Return the cumulative sums of numbers, which start again wherever `run_n` changes."""
    sums_n = np.cumsum(numbers_n)
    is_first_n = np.diff(run_n, prepend=-1) != 0
    return sums_n - (sums_n - numbers_n)[is_first_n][np.cumsum(is_first_n) - 1]


def fill_rows(group: layout.PromptGroup, width: int) -> FilledRows:
    """Return the suffixes in rows of at most `width` columns.

    Suffixes are sorted by their tokens, so that neighbours share long beginnings. A row takes suffixes in that order
    while they fit, and then, again and again, the one among the next `LOOK_AHEAD` that fills most of the rest.
    """
    order_N = _sort(group.suffixes)
    waiting = _Waiting(group.suffixes.lengths_N[order_N], _shared_with_previous(group.suffixes, order_N))
    ends = [0]
    while waiting.first < len(order_N):
        waiting.fill_row(width)
        ends.append(len(waiting.placed))
    row_N = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    return FilledRows(order_N[np.array(waiting.placed, int)], np.array(waiting.shared_in_row, int), row_N)


class _Waiting:
    """The sorted suffixes that wait for a row: a linked list of their ranks, in plain Python, which is fast here.

    Two sorted suffixes share the minimum of what neighbours between them share.

    Attributes:
        first: the first waiting suffix; the number of suffixes if none waits.
        placed: the ranks of the suffixes in rows, one row after the other.
        shared_in_row: the number of tokens that each of these shares with the suffix before it in its row.
    """

    def __init__(self, lengths_N: np.ndarray, shared_N: np.ndarray):
        self.first = 0
        self.placed: list[int] = []
        self.shared_in_row: list[int] = []
        self._lengths = lengths_N.tolist()
        self._shared = [*shared_N.tolist(), 0]  # With the waiting suffix before; the end shares nothing.
        self._following = list(range(1, len(self._lengths) + 1))

    def fill_row(self, width: int) -> None:
        """Move suffixes into the next row."""
        end = len(self._lengths)
        room = width
        common = 0
        added = self._lengths[self.first]
        while added <= room:
            self.placed.append(self.first)
            self.shared_in_row.append(common)
            room -= added
            self.first = self._following[self.first]
            if self.first == end:
                return
            common = self._shared[self.first]
            added = self._lengths[self.first] - common
        before = self.first  # It does not fit.
        candidate = self._following[before]
        common = min(common, self._shared[candidate])
        while room and candidate < end:
            added, best, before, best_common = self._find_best(before, candidate, common, room)
            if added < 0:
                return
            self.placed.append(best)
            self.shared_in_row.append(best_common)
            room -= added
            candidate = self._following[before] = self._following[best]
            common = self._shared[candidate]
            self._shared[candidate] = min(common, self._shared[best])

    def _find_best(self, before: int, candidate: int, common: int, room: int) -> tuple[int, int, int, int]:
        """Find the suffix that fills most of the room, from `candidate` on.

        `common` is the number of tokens that the candidate shares with the last suffix of the row.

        Returns:
            The tokens that it adds, or -1 if none fits; its rank; the waiting suffix before it; the tokens it shares.
        """
        lengths = self._lengths
        shared = self._shared
        following = self._following
        end = len(lengths)
        found = (-1, end, before, 0)
        most = -1
        for _ in range(LOOK_AHEAD):
            added = lengths[candidate] - common
            if most < added <= room:
                most = added
                found = (added, candidate, before, common)
            before = candidate
            candidate = following[candidate]
            if candidate == end or most == room:
                break
            if shared[candidate] < common:
                common = shared[candidate]
        return found


def _one_per_row(group: layout.PromptGroup) -> FilledRows:
    index_N = np.arange(len(group.suffixes))
    return FilledRows(index_N, np.zeros_like(index_N), index_N)


def _sort(rows: layout.TokenRows) -> np.ndarray:
    """Return the order of rows by their tokens: the order of their bytes, highest first."""
    content = rows.tokens_T.astype(">u4").tobytes()
    offsets = (4 * rows.offsets_N).tolist()
    keys = [content[start:end] for start, end in itertools.pairwise(offsets)]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), int)


def _shared_with_previous(rows: layout.TokenRows, order_N: np.ndarray) -> np.ndarray:
    """Return the number of leading tokens that each row shares with the row before it in this order; 0 of the first."""
    starts_N = rows.offsets_N[order_N]
    lengths_N = rows.lengths_N[order_N]
    # In names of arrays, t counts the tokens to compare, those of the shorter row of each pair.
    compared_N = np.minimum(lengths_N, np.concatenate([[0], lengths_N[:-1]]))
    depth_t = layout.spans(np.zeros_like(compared_N), compared_N)
    previous_N = np.concatenate([[0], starts_N[:-1]])
    differs_t = rows.tokens_T[layout.spans(starts_N, compared_N)] != rows.tokens_T[layout.spans(previous_N, compared_N)]
    shared_N = compared_N.copy()
    pair_t = np.repeat(np.arange(len(order_N)), compared_N)
    np.minimum.at(shared_N, pair_t[differs_t], depth_t[differs_t])
    return shared_N


def num_shared(first: np.ndarray, second: np.ndarray) -> int:
    """Return the length of the common prefix."""
    length = min(len(first), len(second))
    [differing] = (first[:length] != second[:length]).nonzero()
    return int(differing[0]) if len(differing) else length


def _num_outputs(group: layout.PromptGroup) -> np.ndarray:
    """Return the number of outputs of each prompt; by default each prompt has one."""
    return np.ones(len(group.suffixes), int) if group.num_outputs_N is None else group.num_outputs_N


def _outputs_per_row(group: layout.PromptGroup, rows: FilledRows) -> np.ndarray:
    return np.bincount(rows.row_N, _num_outputs(group)[rows.index_N]).astype(int)


def max_outputs(group: layout.PromptGroup, rows: FilledRows, rows_per_step: int) -> int:
    """Return the largest number of outputs of a step; 0 if there are no rows."""
    outputs_R = _outputs_per_row(group, rows)
    num_steps = math.ceil(rows.num_rows / rows_per_step)
    step_R, _ = _distribute(outputs_R, num_steps)
    return int(np.bincount(step_R, outputs_R).max(initial=0))


def _distribute(outputs_R: np.ndarray, num_steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the step of each row, and its place there, so that all steps have about the same number of outputs.

    Rows with the most outputs come first. Every other round goes through the steps backwards.
    """
    rank_R = np.empty(len(outputs_R), int)
    rank_R[np.argsort(-outputs_R, kind="stable")] = np.arange(len(outputs_R))
    row_in_step_R, step_R = np.divmod(rank_R, max(1, num_steps))
    return np.where(row_in_step_R % 2, num_steps - 1 - step_R, step_R), row_in_step_R
