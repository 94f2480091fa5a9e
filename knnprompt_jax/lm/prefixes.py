"""Keys and values of demonstrations in the user's cache folder: they take longer to compute than one text after them.

Only float32 models on one CPU keep them. Accelerators compute them faster than they read them from a disk.
"""

import contextlib
import hashlib
import pathlib

import numpy as np

from knnprompt_jax import errors, files
from knnprompt_jax.models import attention
from knnprompt_jax.models.weights import kept_arrays, kept_files
from knnprompt_jax.prompts import packing

_MAX_BYTES = kept_files.MAX_BYTES // 8  # Of one file.


def path_of(model: pathlib.Path, packed: packing.PackedPrompts) -> pathlib.Path | None:
    """Return the path for the prefix of a model in a file or folder; None if there is no cache folder."""
    tokens_P = np.array([packed.prefix_length, *packed.prefix_P], np.int32)
    return kept_files.path_of(model, f"{hashlib.sha256(tokens_P.tobytes()).hexdigest()}.prefix.safetensors")


def read(path: pathlib.Path, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the keys and values [L, G, P, K]; None if the file is missing or damaged."""
    found = kept_arrays.read(path, {"k": shape, "v": shape})
    if found is None:
        return None
    kept_files.mark_used(path)
    return found["k"].view(), found["v"].view()


def keep(path: pathlib.Path, prefix: attention.Prefix) -> None:
    """Write the keys and values of a prefix, if that is possible and they are not too large."""
    if prefix.k.nbytes + prefix.v.nbytes > _MAX_BYTES:
        return
    arrays = {"k": np.asarray(prefix.k), "v": np.asarray(prefix.v)}
    with contextlib.suppress(errors.UserError), files.new_file(path) as draft:
        kept_arrays.write(arrays, draft)
    kept_files.mark_used(path)
