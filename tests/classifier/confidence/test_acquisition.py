"""The rows to label next: uncertain, and not near each other."""

import numpy as np
import pytest

from knnprompt_jax.classifier.confidence import acquisition


def test_uncertain_rows_come_before_certain_ones():
    p_NC = np.tile([1 - 2e-9, 1e-9, 1e-9], (29, 1))
    p_NC[[5, 11, 17]] = [[0.4, 0.35, 0.25], [0.3, 0.4, 0.3], [0.5, 0.5, 0]]
    x_NF = np.random.default_rng(0).normal(size=(29, 7))
    assert {*acquisition.select_batch(p_NC, x_NF, 3)} == {5, 11, 17}


@pytest.mark.parametrize("seed", range(5))
def test_one_row_of_each_group_is_chosen(seed):
    """The margin alone would choose all rows from the first group, the least certain one."""
    groups = np.repeat([0, 1, 2], 11)
    x_NF = 20 * np.eye(5)[groups] + np.random.default_rng(1).normal(size=(33, 5)) / 50
    p_NC = np.array([[0.51, 0.49], [0.54, 0.46], [0.56, 0.44]])[groups]
    assert {*groups[acquisition.select_batch(p_NC, x_NF, 3, seed)]} == {0, 1, 2}


@pytest.mark.parametrize("count", [1, 7, 13, 50])
def test_every_row_is_chosen_once(count):
    rng = np.random.default_rng(2)
    p_NC = rng.dirichlet(np.ones(3), 13)
    x_NF = rng.normal(size=(13, 2))
    x_NF[7:] = x_NF[6]
    p_NC[7:] = p_NC[6]
    chosen = acquisition.select_batch(p_NC, x_NF, count)
    assert len({*chosen}) == len(chosen) == min(count, 13)
    if count < 8:
        assert len({*chosen} & {*range(6, 13)}) <= 1


def test_a_single_class_has_no_gradient():
    assert acquisition.select_batch(np.ones((5, 1)), np.eye(5), 3).tolist() == [0, 1, 2]
