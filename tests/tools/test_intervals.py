"""An interval of the bootstrap against the error of a mean."""

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
