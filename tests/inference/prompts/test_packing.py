"""Packed rows hold every suffix whole at its own positions, pack common prefixes once, and waste little room."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

from knnprompt_jax.inference.prompts import packing
from tests import prompt_groups


def unpack(packed, prompt):
    """The tokens and positions of one prompt's suffix, found as the language model finds it: from where it ends."""
    step, end = divmod(packed.slot_N[prompt], packed.shape.outputs)
    shard = packed.shard_N[prompt]
    row, last = divmod(packed.steps.output_positions_J[step, shard, end], packed.shape.width)
    stops_S = packed.steps.stops_BS[step, shard, row]
    columns = np.flatnonzero((np.arange(packed.shape.width) <= last) & (last < stops_S))
    return packed.steps.tokens_BS[step, shard, row, columns], packed.steps.positions_BS[step, shard, row, columns]


def assert_packs(group, packed):
    """Everything that makes packed rows the group's prompts."""
    shape, length = packed.shape, len(group.prefix_P)
    assert packed.prefix_P.shape == (shape.prefix,) and packed.prefix_length == length
    np.testing.assert_array_equal(packed.prefix_P[:length], group.prefix_P)
    shards = max(packed.shard_N) + 1
    for array in (packed.steps.tokens_BS, packed.steps.stops_BS, packed.steps.positions_BS):
        assert array.shape == (packed.num_steps, shards, shape.rows, shape.width) and array.dtype == np.int32
    assert packed.steps.output_positions_J.shape == (packed.num_steps, shards, shape.outputs)
    assert packed.steps.output_positions_J.max() < shape.rows * shape.width
    for prompt, suffix in enumerate(group.suffixes):
        tokens, positions = unpack(packed, prompt)
        np.testing.assert_array_equal(tokens, suffix)
        np.testing.assert_array_equal(positions, length + np.arange(len(suffix)))
    assert len(set(packed.flat_slot_N)) == len(group.suffixes)
    leads = {tuple(suffix[: length + 1]) for suffix in group.suffixes for length in range(len(suffix))}
    assert packed.num_tokens == np.count_nonzero(packed.steps.tokens_BS) == np.count_nonzero(packed.steps.stops_BS)
    assert len(leads) <= packed.num_tokens <= sum(map(len, group.suffixes))
    assert not packed.prefix_P[length:].any() and not packed.steps.positions_BS[packed.steps.stops_BS == 0].any()


def test_the_example_of_the_docstring():
    """Two suffixes that begin alike share columns; the shared tokens stop where the later suffix ends."""
    group = prompt_groups.make_group([[7, 8, 9], [7, 8, 4, 6]], prefix=(1, 2))
    packed = packing.pack(group, packing.PackShape(prefix=2, width=8, rows=1, outputs=2))
    np.testing.assert_array_equal(packed.steps.tokens_BS[0, 0, 0], [7, 8, 4, 6, 9, 0, 0, 0])
    np.testing.assert_array_equal(packed.steps.positions_BS[0, 0, 0], [2, 3, 4, 5, 4, 0, 0, 0])
    np.testing.assert_array_equal(packed.steps.stops_BS[0, 0, 0], [5, 5, 4, 4, 5, 0, 0, 0])
    np.testing.assert_array_equal(packed.steps.output_positions_J[0, 0, :2], [3, 4])
    np.testing.assert_array_equal(packed.slot_N, [1, 0])


def test_a_suffix_may_fill_its_row():
    group = prompt_groups.make_random_group([packing.ROW_WIDTH, 3, packing.ROW_WIDTH, packing.ROW_WIDTH - 3])
    packed = packing.pack(group, packing.choose_shape([group], step_tokens=packing.ROW_WIDTH))
    assert_packs(group, packed)
    np.testing.assert_array_equal(packed.lengths_TD[:, 0], 3 * [packing.ROW_WIDTH])


@pytest.mark.parametrize("name, mean, count", [("TREC", 14.4, 4398), ("MR", 29.4, 2032)])
def test_packing_leaves_few_unused_tokens(name, mean, count):
    """Lengths as those of suffixes of the paper's tasks at 1,024 shots: skewed, a few tokens at least.

    Unused tokens cost a pass through the blocks, unused ends one through the head (their number is rounded up to 8s).
    """
    rng = np.random.default_rng(len(name))
    lengths = np.clip(np.round(4 + rng.gamma(2.5, (mean - 4) / 2.5, count)), 3, 128).astype(int)
    group = prompt_groups.make_random_group(lengths)
    packed = packing.pack(group, packing.choose_shape([group], 2560))
    assert packed.num_tokens / packed.steps.tokens_BS.size > 0.98
    assert count / packed.steps.output_positions_J.size > 0.85


def test_tokens_that_suffixes_share_are_packed_once():
    """Every token of a forest is packed once, in any order of suffixes, with a prefix of another and a duplicate."""
    suffixes = ([5, 7, 11, 13], [5, 7, 17], [3], [5, 7], [5, 7, 11, 13], [3, 19, 23], [7, 5])
    for shift in range(len(suffixes)):
        group = prompt_groups.make_group(suffixes[shift:] + suffixes[:shift], prefix=(2, 29))
        packed = packing.pack(group, packing.choose_shape([group], 1024))
        assert_packs(group, packed)
        assert packed.num_tokens == 5 + 3 + 2 and packed.shape.rows == 1


def test_a_part_that_is_denser_than_its_group_has_room_for_its_outputs():
    """Packing only a group's short suffixes in the group's shape allows more outputs per step than the group needs."""
    group = prompt_groups.make_random_group([97] * 24 + [3] * 211, prefix_length=5)
    shape = packing.choose_shape([group], 512)
    part = prompt_groups.make_group(group.suffixes[24:], group.prefix_P)
    packed = packing.pack(part, shape)
    assert packed.shape.outputs > shape.outputs and packed.num_steps > 1
    assert_packs(part, packed)


LENGTHS = strategies.lists(strategies.integers(1, 300), min_size=1, max_size=40)


@hypothesis.settings(max_examples=40, deadline=None)
@hypothesis.given(
    LENGTHS, LENGTHS, strategies.integers(0, 150), strategies.integers(1, 2000), strategies.integers(2, 9)
)
def test_groups_of_any_lengths_are_packed_whole(lengths, other_lengths, prefix_length, step_tokens, vocabulary):
    """The fewer tokens there are, the more suffixes begin alike."""
    groups = [
        prompt_groups.make_random_group(lengths, prefix_length, 0, vocabulary),
        prompt_groups.make_random_group(other_lengths, 0, 1, vocabulary),
    ]
    shape = packing.choose_shape(groups, step_tokens)
    assert shape.width == max(128, -(-max(*lengths, *other_lengths) // 64) * 64)
    assert shape.rows == 1 or shape.rows * shape.width <= step_tokens
    for group in groups:
        assert_packs(group, packing.pack(group, shape))


def test_a_process_packs_only_its_data_shards():
    """Together the processes have what one has that packs all; the number of steps is that of all."""
    group = prompt_groups.make_random_group(np.arange(1, 120) % 29 + 1, prefix_length=5, vocabulary=7)
    shape = packing.choose_shape([group], 512, shards=3)
    whole = packing.pack(group, shape, shards=3)
    assert_packs(group, whole)
    for shard in range(3):
        own = packing.pack(group, shape, 3, {shard}, lambda numbers: [whole.num_steps, whole.shape.outputs])
        for own_TD, whole_TD in zip((*own.steps, own.lengths_TD), (*whole.steps, whole.lengths_TD), strict=True):
            expected_TD = np.zeros_like(whole_TD)
            expected_TD[:, shard] = whole_TD[:, shard]
            np.testing.assert_array_equal(own_TD, expected_TD)
        np.testing.assert_array_equal(own.slot_N, np.where(whole.shard_N == shard, whole.slot_N, 0))
