"""A prompt in a row of its own: the position of its tokens depends on no other prompt, and no token is lost."""

import hypothesis
import numpy as np
from hypothesis import strategies

from knnprompt_jax.inference.prompts import layout, packing
from tests import prompt_groups

DEMONSTRATIONS = (3, 1, 4, 1, 5)
TEXTS = strategies.lists(strategies.lists(strategies.integers(1, 5), min_size=1, max_size=40), min_size=1, max_size=20)


def arranged(texts, shared):
    """Prompts whose groups share as many of the demonstrations' tokens as a batch happened to."""
    suffixes = [[*DEMONSTRATIONS[shared:], *text] for text in texts]
    group = prompt_groups.make_group(suffixes, DEMONSTRATIONS[:shared])
    return packing.arrange_alone([group], np.array(DEMONSTRATIONS, np.int32))


@hypothesis.settings(max_examples=30, deadline=None)
@hypothesis.given(TEXTS, strategies.integers(0, 5), strategies.integers(1, 3000))
def test_every_prompt_has_a_row_of_its_own(texts, shared, step_tokens):
    groups = arranged(texts, shared)
    tokens = prompt_groups.tokens_of(layout.Prompts.from_groups(groups, len(texts)))
    assert tokens == [[*DEMONSTRATIONS, *text] for text in texts]
    for group in groups:
        shape = packing.shape_alone(group, step_tokens)
        assert group.prefix_P.tolist() == list(DEMONSTRATIONS)
        assert {max(16, 2 ** int(np.ceil(np.log2(len(suffix))))) for suffix in group.suffixes} == {shape.width}
        assert shape.rows == 1 or step_tokens / 2 < shape.rows * shape.width <= step_tokens
        packed = packing.pack(group, shape)
        for suffix, slot in zip(group.suffixes, packed.slot_N, strict=True):
            step, end = divmod(slot, shape.outputs)
            row, last = divmod(packed.steps.output_positions_J[step, 0, end], shape.width)
            assert last == len(suffix) - 1
            assert packed.steps.tokens_BS[step, 0, row, : len(suffix)].tolist() == suffix.tolist()
            assert not packed.steps.stops_BS[step, 0, row, len(suffix) :].any()


def test_a_prompt_that_does_not_begin_with_the_demonstrations_has_no_prefix():
    """A truncated one, and one that ends with them."""
    group = prompt_groups.make_group([range(1, 70), DEMONSTRATIONS], index=[1, 0])
    groups = packing.arrange_alone([group], np.array(DEMONSTRATIONS, np.int32))
    assert [(len(group.prefix_P), group.number_N.tolist()) for group in groups] == [(0, [0]), (0, [1])]
    assert [packing.shape_alone(group, 2560).width for group in groups] == [16, 128]
