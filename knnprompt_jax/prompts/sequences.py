"""Whole sequences in batches of few shapes, padded on the right, for sentence encoders and fine-tuned classifiers."""

from collections.abc import Iterator, Sequence

import numpy as np

SMALLEST_WIDTH = 32  # Tokens.


def pad(sequences: Sequence[Sequence[int]], rows: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return tokens [rows, width] and lengths [rows] of at most `rows` sequences; each unused row has one token, 0."""
    tokens_BT = np.zeros((rows, width), np.int32)
    lengths_B = np.ones(rows, np.int32)
    for row, sequence in enumerate(sequences):
        tokens_BT[row, : len(sequence)] = sequence
        lengths_B[row] = len(sequence)
    return tokens_BT, lengths_B


def batches(lengths_N: np.ndarray, rows: int, longest: int) -> Iterator[tuple[np.ndarray, int, int]]:
    """Yield the sequences of each batch as (indices, rows, width).

    Widths are powers of two from 32 up to `longest`, so that a few shapes serve any number of texts. A batch of width
    `longest` has `rows` rows; narrower batches have proportionally more.
    """
    widths_N = np.minimum(longest, np.maximum(SMALLEST_WIDTH, 2 ** np.ceil(np.log2(lengths_N)).astype(int)))
    for width in np.unique(widths_N).tolist():
        members = np.flatnonzero(widths_N == width)
        size = rows * (longest // width)
        for start in range(0, len(members), size):
            yield members[start : start + size], size, width
