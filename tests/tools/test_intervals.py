"""Intervals of the bootstrap against the errors of a mean, and the draws that tasks and sets of rows share."""

import numpy as np
import pytest

from tools import intervals


def test_an_interval_is_that_of_rows_where_seeds_agree():
    rng = np.random.default_rng(3)
    rows_Q = rng.choice([-1, 0, 1], p=[0.1, 0.5, 0.4], size=997)
    mean, low, high = intervals.bootstrap([rows_Q[None]])
    error = 100 * rows_Q.std() / np.sqrt(997)
    assert mean == pytest.approx(100 * rows_Q.mean())
    assert (high - low) / 2 == pytest.approx(1.96 * error, rel=0.05)
    other = intervals.bootstrap([-rows_Q[None]])
    assert (other.low, other.high) == pytest.approx((-high, -low))


def test_an_interval_is_that_of_seeds_where_rows_agree():
    seeds_SQ = np.repeat(np.random.default_rng(3).choice([-1, 1], size=(41, 1)), 7, axis=1)
    found = intervals.bootstrap([seeds_SQ])
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * 100 * seeds_SQ.std() / np.sqrt(41), rel=0.1)


def test_an_interval_over_tasks_is_that_of_their_mean():
    rng = np.random.default_rng(5)
    tasks = [rng.choice([0, 1], size=(5, rows)) for rows in (307, 211)]
    alone, both = intervals.bootstrap(tasks[:1]), intervals.bootstrap(tasks)
    assert both.mean == pytest.approx(100 * np.mean([task.mean() for task in tasks]))
    assert both.high - both.low < 0.9 * (alone.high - alone.low)
    assert intervals.bootstrap([np.ones((2, 3)), np.zeros((4, 5))]) == (50, 50, 50)


def test_sets_of_rows_share_the_seeds_and_their_means_add_up():
    by_seed = np.array([[0] * 6, [1] * 6, [1] * 6])
    assert intervals.bootstrap([(by_seed, -by_seed[:, :5])]) == (0, 0, 0)
    by_row = np.array([[1, 1, 0, 0, 0, 0]] * 3)
    apart = intervals.bootstrap([(by_row, -by_row)])
    assert apart.mean == 0 and apart.low < -30 and apart.high > 30
