"""Padded batches hold every sequence once, in a handful of shapes."""

import numpy as np

from knnprompt_jax.prompts import packing


def test_pad():
    tokens_BT, lengths_B = packing.pad([[7, 5, 3], [2]], 3, 5)
    np.testing.assert_array_equal(tokens_BT, [[7, 5, 3, 0, 0], [2, 0, 0, 0, 0], [0, 0, 0, 0, 0]])
    np.testing.assert_array_equal(lengths_B, [3, 1, 1])


def test_batches_hold_everything_once():
    lengths_N = np.random.default_rng(0).integers(1, 90, 101)
    seen = []
    for members, rows, width in packing.batches(lengths_N, 2, 90):
        assert len(members) <= rows and lengths_N[members].max() <= width and width in (32, 64, 90)
        assert rows == {32: 4, 64: 2, 90: 2}[width]
        seen += members.tolist()
    assert sorted(seen) == list(range(101))
