"""Whole sequences → right-padded batches, for models that read each text alone: sentence encoders and fine-tuned classifiers."""

from collections.abc import Iterator, Sequence

import numpy as np

SMALLEST_WIDTH = 32


def pad(sequences: Sequence[Sequence[int]], rows: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens [rows, width] and lengths [rows] of at most that many sequences; rows beyond them have one token, 0."""
    tokens_BT, lengths_B = np.zeros((rows, width), np.int32), np.ones(rows, np.int32)
    for row, sequence in enumerate(sequences):
        tokens_BT[row, : len(sequence)], lengths_B[row] = sequence, len(sequence)
    return tokens_BT, lengths_B


def batches(lengths_N: np.ndarray, rows: int, longest: int) -> Iterator[tuple[np.ndarray, int, int]]:
    """Which sequences go together, as (indices, rows, width).

    Widths are powers of two from 32, and `longest` the last: a handful of shapes to compile for any number of texts.
    A batch of the longest has `rows` rows, a narrower batch as many times more as it is narrower.
    """
    widths_N = np.minimum(longest, np.maximum(SMALLEST_WIDTH, 2 ** np.ceil(np.log2(lengths_N)).astype(int)))
    for width in np.unique(widths_N).tolist():
        members, size = np.flatnonzero(widths_N == width), rows * (longest // width)
        for start in range(0, len(members), size):
            yield members[start : start + size], size, width
