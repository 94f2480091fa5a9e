"""Right-padded batches of whole sequences, for sentence encoders and fine-tuned classifiers."""

from collections.abc import Iterator, Sequence

import numpy as np

SMALLEST_WIDTH = 32


def pad(sequences: Sequence[Sequence[int]], rows: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return tokens [rows, width] and lengths [rows] of at most `rows` sequences; each unused row has one token, 0."""
    tokens_BT, lengths_B = np.zeros((rows, width), np.int32), np.ones(rows, np.int32)
    for row, sequence in enumerate(sequences):
        tokens_BT[row, : len(sequence)], lengths_B[row] = sequence, len(sequence)
    return tokens_BT, lengths_B


def batches(lengths_N: np.ndarray, rows: int, longest: int) -> Iterator[tuple[np.ndarray, int, int]]:
    """Yield the sequences of each batch as (indices, rows, width).

    Widths are powers of two from 32 up to `longest`, so that a few shapes serve any number of texts. A batch of the longest has
    `rows` rows; narrower batches have proportionally more.
    """
    widths_N = np.minimum(longest, np.maximum(SMALLEST_WIDTH, 2 ** np.ceil(np.log2(lengths_N)).astype(int)))
    for width in np.unique(widths_N).tolist():
        members, size = np.flatnonzero(widths_N == width), rows * (longest // width)
        for start in range(0, len(members), size):
            yield members[start : start + size], size, width
