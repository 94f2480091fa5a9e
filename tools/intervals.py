"""Paired differences between predictions and their intervals, by a bootstrap over test rows and seeds."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from knnprompt_jax.report import records

_REPLICATES = 5_000


class Difference(NamedTuple):
    """A mean paired difference in points and its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        is_near_zero = min(abs(self.low), abs(self.high)) < 0.05
        digits = 2 if is_near_zero else 1  # An end near zero shows its sign.
        rounded = Difference(*(round(value, digits) + 0.0 for value in self))  # No negative zero.
        return f"{rounded.mean:+.{digits}f} [{rounded.low:.{digits}f}, {rounded.high:.{digits}f}]"

    @property
    def sign(self) -> int:
        """1 if the interval lies above zero, −1 if it lies below, and 0 if it contains zero."""
        return (self.low > 0) - (self.high < 0)


def right_rows(record: records.Record) -> np.ndarray:
    """Return which predictions of a record are right, [rows] in 0 and 1."""
    return (np.array(record.predicted) == np.array(record.true)).astype(np.int8)


def bootstrap(differences: Sequence[np.ndarray | tuple[np.ndarray, ...]]) -> Difference:
    """Return the mean over tasks of paired differences, with an interval by a bootstrap over rows and seeds together.

    A replicate draws seeds and, independently, rows with replacement. Each task has draws of its own.

    Args:
        differences: an array [seeds, rows] for each task: 1 where only our prediction is right, −1 where only theirs is
            right, and 0 elsewhere. A tuple holds arrays of the same seeds and different rows, whose means add up.
    """
    means_B = np.zeros(_REPLICATES)
    mean = 0.0
    for index, task in enumerate(differences):
        parts = task if isinstance(task, tuple) else (task,)
        num_rows = [part_SQ.shape[1] for part_SQ in parts]
        seeds_BS, *rows = _draws(index, len(parts[0]), *num_rows)
        for part_SQ, rows_BQ in zip(parts, rows, strict=True):
            # Sums of small whole numbers, which float32 holds exactly: the same on every machine.
            sums_B = ((rows_BQ @ part_SQ.T.astype(np.float32)) * seeds_BS).sum(1)
            means_B += sums_B.astype(np.float64) / part_SQ.size
            mean += float(part_SQ.mean())
    low, high = np.quantile(100 * means_B / len(differences), (0.025, 0.975))
    return Difference(100 * mean / len(differences), float(low), float(high))


@functools.lru_cache(maxsize=32)  # Many differences are over the same tasks, seeds and rows.
def _draws(index: int, num_seeds: int, *num_rows: int) -> list[np.ndarray]:
    """Return how often each replicate draws each seed [B, S] and each row [B, Q] of each array of the index-th task."""
    rng = np.random.default_rng([index, num_seeds, *num_rows])
    drawn = []
    for count in (num_seeds, *num_rows):
        indices_BN = rng.integers(count, size=(_REPLICATES, count)) + count * np.arange(_REPLICATES)[:, None]
        counts = np.bincount(indices_BN.ravel(), minlength=_REPLICATES * count)
        drawn.append(counts.reshape(_REPLICATES, count).astype(np.float32))
    return drawn
