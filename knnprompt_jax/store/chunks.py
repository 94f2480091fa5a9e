"""States of finished chunks of prompts in a folder, each file whole and self-verifying or not there."""

import hashlib
import io
import pathlib

import jax
import numpy as np

from knnprompt_jax import files, lm

_SUM_BYTES = 32


def write(folder: pathlib.Path, number: int, states: lm.States) -> None:
    """A SHA-256 sum, then both arrays in NumPy's format."""
    content = io.BytesIO()
    np.savez(content, hidden_NE=np.asarray(states.hidden_NE), log_z_N=np.asarray(states.log_z_N))
    with files.new_file(_path(folder, number)) as draft:
        draft.write_bytes(hashlib.sha256(content.getvalue()).digest() + content.getvalue())


def read(folder: pathlib.Path, number: int) -> lm.States | None:
    """The states of a chunk; None where it is not there, or damaged and so to be computed again."""
    try:
        content = _path(folder, number).read_bytes()
    except FileNotFoundError:
        return None
    if hashlib.sha256(content[_SUM_BYTES:]).digest() != content[:_SUM_BYTES]:
        return None
    arrays = np.load(io.BytesIO(content[_SUM_BYTES:]), allow_pickle=False)
    return lm.States(arrays["hidden_NE"], arrays["log_z_N"])


def read_all(folder: pathlib.Path, count: int) -> lm.States:
    """The states of chunks 0 … count − 1, one after the other, in host memory."""
    parts = [read(folder, number) for number in range(count)]
    return jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)


def _path(folder: pathlib.Path, number: int) -> pathlib.Path:
    return folder / f"chunk-{number:06d}"
