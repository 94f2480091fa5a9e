"""Text files → documents → token blocks, the same for a seed on every machine and after every restart."""

import glob
import gzip
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np
import tokenizers

from knnprompt_jax import errors

END_OF_TEXT = "<|endoftext|>"
HELD_OUT_EVERY = 100  # Of each hundred documents, the last is kept for the held-out loss.


def find_files(patterns: Sequence[str]) -> list[pathlib.Path]:
    """The files behind names, folders (their .txt and .txt.gz files) and glob patterns, sorted; UserError if any leads nowhere."""
    files: list[pathlib.Path] = []
    for pattern in patterns:
        folder = pathlib.Path(pattern)
        matches = sorted(folder.glob("*.txt*") if folder.is_dir() else map(pathlib.Path, glob.glob(pattern)))
        if not matches:
            raise errors.UserError(
                f"no text files at {pattern!r}: give .txt or .txt.gz files, a folder of them, or a glob pattern"
            )
        files += matches
    return files


def read_documents(files: Sequence[pathlib.Path]) -> Iterator[str]:
    """Documents of UTF-8 text files; a line holding only `<|endoftext|>` ends one, and so does the end of a file."""
    for file in files:
        opener = gzip.open if file.suffix == ".gz" else open
        lines: list[str] = []
        try:
            with opener(file, "rt", encoding="utf-8") as handle:
                for line in handle:
                    if line.strip() != END_OF_TEXT:
                        lines.append(line)
                        continue
                    yield "".join(lines).strip()
                    lines = []
        except (UnicodeDecodeError, EOFError, OSError) as error:
            raise errors.UserError(f"{file}: cannot be read as text: {error}") from error
        if lines:
            yield "".join(lines).strip()


def split_held_out(documents: Sequence[str]) -> tuple[list[str], list[str]]:
    """Training and held-out documents."""
    held_out = list(documents[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY])
    return [text for number, text in enumerate(documents, 1) if number % HELD_OUT_EVERY], held_out


def encode(tokenizer: tokenizers.Tokenizer, documents: Sequence[str]) -> list[np.ndarray]:
    """Token ids of each document, each closed by the end-of-text token."""
    end = tokenizer.token_to_id(END_OF_TEXT)
    return [np.array([*encoding.ids, end], np.int32) for encoding in tokenizer.encode_batch(list(documents))]


def blocks(documents: Sequence[np.ndarray], length: int, seed: int, epoch: int) -> np.ndarray:
    """The epoch's blocks [n, length + 1]: documents in a fresh order, joined and cut; the last tokens that fill no block are left out."""
    order = np.random.default_rng([seed, epoch]).permutation(len(documents))
    joined = np.concatenate([documents[index] for index in order])
    count = (len(joined) - 1) // length
    if not count:
        raise errors.UserError(
            f"the text has {len(joined)} tokens, fewer than one block of {length}: give more text or a shorter context"
        )
    return np.lib.stride_tricks.sliding_window_view(joined, length + 1)[: count * length : length]


def batches(documents: Sequence[np.ndarray], batch: int, length: int, seed: int, start: int) -> Iterator[np.ndarray]:
    """Batches [batch, length + 1] from that number on, without end: a restart continues where it stopped.

    Raises UserError where an epoch has no whole batch.
    """
    per_epoch = len(blocks(documents, length, seed, 0)) // batch
    if not per_epoch:
        raise errors.UserError(
            f"the text gives fewer than {batch} blocks of {length} tokens: lower the batch or give more text"
        )
    epoch, skipped = divmod(start, per_epoch)
    while True:
        shuffled = blocks(documents, length, seed, epoch)
        yield from np.split(shuffled[skipped * batch : per_epoch * batch], per_epoch - skipped)
        epoch, skipped = epoch + 1, 0
