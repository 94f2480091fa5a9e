"""An order of rows by a seeded hash of their texts, and folds of rows with the same shares of classes."""

import collections
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from knnprompt_jax.tasks.task import Example

LIMIT = 1024  # The maximum number of rows that experts are compared on.
MANY_CLASSES = 20  # From so many on, prompts have no demonstrations, class means are whitened, and priors differ.
_MAX_FOLDS = 10


def ranked(rows: Sequence[Example], seed: int) -> list[int]:
    """Return the indices of all rows in the order of a seeded hash of their texts.

    A few new rows rarely change the order of the others. Equal texts have different hashes, by their order among the
    rows. Labels do not matter.
    """
    digests = []
    earlier: collections.Counter[str] = collections.Counter()
    for row in rows:
        text = json.dumps(dict(row.fields), sort_keys=True)
        digests.append(hashlib.sha256(f"{seed} {earlier[text]} {text}".encode()).digest())
        earlier[text] += 1
    return sorted(range(len(rows)), key=digests.__getitem__)


def sample(rows: Sequence[Example], seed: int) -> list[int]:
    """Return the indices of the rows that experts are compared on, in ascending order."""
    return sorted(ranked(rows, seed)[:LIMIT])


def first_of_each(rows: Sequence[Example], order: Sequence[int], shots: int | Mapping[str, int]) -> list[int]:
    """Return the indices of the first `shots` rows of each label, in this order of the rows.

    Args:
        shots: one number for all labels, or a number for each.
    """
    missing = {row.label: shots if isinstance(shots, int) else shots[row.label] for row in rows}
    first = []
    for index in order:
        if missing[rows[index].label] > 0:
            missing[rows[index].label] -= 1
            first.append(index)
    return first


def held_out(folds_N: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows that remain without each fold, and the rows of the fold."""
    for fold in np.unique(folds_N):
        yield np.flatnonzero(folds_N != fold), np.flatnonzero(folds_N == fold)


def deal(y_N: np.ndarray) -> np.ndarray:
    """Return the fold [N] of each row, from 0; each class is spread evenly over at most ten folds.

    A fold that is held out then leaves the other rows with the same shares of classes. Leaving out one row instead
    would make its class rarer than in the whole, which few rows turn into a bias against the true class.
    """
    counts_C = np.bincount(y_N)
    num_folds = max(2, min(_MAX_FOLDS, counts_C.max()))
    order_N = np.random.default_rng(0).permutation(len(y_N))
    order_N = order_N[np.argsort(y_N[order_N], kind="stable")]
    folds_N = np.empty(len(y_N), int)
    folds_N[order_N] = np.arange(len(y_N)) % num_folds
    return folds_N
