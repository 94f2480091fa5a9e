"""Paired differences between predictions, their intervals, and what they say of a claim."""

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

_REPLICATES = 5_000


class Difference(NamedTuple):
    """A mean paired difference in points and its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        digits = 1 if min(abs(self.low), abs(self.high)) >= 0.05 else 2  # An end near zero shows its sign.
        mean, low, high = (round(value, digits) + 0.0 for value in self)  # No negative zero.
        return f"{mean:+.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"

    @property
    def sign(self) -> int:
        """1 or −1 if the interval lies above or below zero; otherwise 0."""
        return (self.low > 0) - (self.high < 0)


def bootstrap(differences: Sequence[np.ndarray | tuple[np.ndarray, ...]]) -> Difference:
    """Return the mean over tasks of paired differences, with an interval by a bootstrap over rows and seeds together.

    A replicate draws seeds and, independently, rows with replacement, for each task by itself.

    Args:
      differences: for each task [seeds, rows]: 1 where only our prediction is right, −1 where only theirs is, else 0;
        or a tuple of such arrays of different rows, whose means add up.
    """
    means, mean = np.zeros(_REPLICATES), 0.0
    for place, task in enumerate(differences):
        parts = task if isinstance(task, tuple) else (task,)
        seeds_BS, *rows = _draws(place, len(parts[0]), *(part_SQ.shape[1] for part_SQ in parts))
        for part_SQ, rows_BQ in zip(parts, rows, strict=True):
            # Sums of small whole numbers, which float32 holds exactly: the same on every machine.
            sums_B = ((rows_BQ @ part_SQ.T.astype(np.float32)) * seeds_BS).sum(1)
            means += sums_B.astype(np.float64) / part_SQ.size
            mean += float(part_SQ.mean())
    low, high = map(float, np.quantile(100 * means / len(differences), (0.025, 0.975)))
    return Difference(100 * mean / len(differences), low, high)


@functools.cache
def _draws(place: int, num_seeds: int, *num_rows: int) -> list[np.ndarray]:
    """Return how often each replicate draws each seed [B, S] and each row [B, Q] of the task's sets of rows."""
    rng = np.random.default_rng([place, num_seeds, *num_rows])
    drawn = []
    for count in (num_seeds, *num_rows):
        indices_BN = rng.integers(count, size=(_REPLICATES, count)) + count * np.arange(_REPLICATES)[:, None]
        counts = np.bincount(indices_BN.ravel(), minlength=_REPLICATES * count)
        drawn.append(counts.reshape(_REPLICATES, count).astype(np.float32))
    return drawn


def verdict(differences: Mapping[int, Difference]) -> str:
    """Say whether, or at which m, differences are above zero (yes) or below (no); without any differences, return a dash."""
    kinds = {sign: [m for m, each in differences.items() if each.sign == sign] for sign in (1, -1)}
    words = {1: "yes", -1: "no"}
    texts = [
        words[sign] + ("" if len(shots) == len(differences) else f" (m = {', '.join(map(str, shots))})")
        for sign, shots in kinds.items()
        if shots
    ]
    return "; ".join(texts) or ("?" if differences else "–")
