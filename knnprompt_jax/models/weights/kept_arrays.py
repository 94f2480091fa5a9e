"""Float32 arrays in a safetensors file of the user's cache folder, with checksums; they are mapped, not copied."""

import contextlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors.numpy

from knnprompt_jax import errors, files
from knnprompt_jax.models.weights import kept_files, tensor_files

_ALIGNMENT = 64  # Bytes: XLA's CPU client copies other arrays.
_CHECKSUMS = "checksums"  # A key of the file's metadata.


def read(path: pathlib.Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tensor_files.Tensor] | None:
    """Return the arrays of a file; None if it is missing or damaged, or its arrays have other names or shapes."""
    try:
        found = {tensor.key: tensor for tensor in tensor_files.read([path])}
        with safetensors.safe_open(path, "np") as file:
            checksums = (file.metadata() or {}).get(_CHECKSUMS, "")
    except (errors.UserError, OSError, safetensors.SafetensorError):
        return None
    kinds = {key: (tensor.shape, tensor.dtype) for key, tensor in found.items()}
    if kinds != {key: (shape, np.float32) for key, shape in shapes.items()}:
        return None
    if checksums.rstrip() != _checksums({key: tensor.view() for key, tensor in found.items()}):
        return None
    kept_files.mark_used(path)
    return found


def write(path: pathlib.Path, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays with their checksums, if the system does not refuse.

    Blanks after the checksums align the arrays, so that JAX need not copy them.
    """
    checksums = _checksums(arrays)
    with contextlib.suppress(errors.UserError), files.new_file(path) as draft:
        safetensors.numpy.save_file(arrays, draft, {_CHECKSUMS: checksums})
        with draft.open("rb") as file:
            start = 8 + int.from_bytes(file.read(8), "little")  # The header begins with its length, in 8 bytes.
        if start % _ALIGNMENT:
            blanks = " " * (_ALIGNMENT - start % _ALIGNMENT)
            safetensors.numpy.save_file(arrays, draft, {_CHECKSUMS: checksums + blanks})
    kept_files.mark_used(path)


def _checksums(arrays: Mapping[str, Any]) -> str:
    """Return sums of the bits of float32 arrays as integers, which take no longer than reading the arrays."""
    sums = {}
    for name, array in sorted(arrays.items()):
        bits = np.ascontiguousarray(array).ravel().view(np.uint32)
        sums[name] = int(bits.view(np.uint64 if bits.size % 2 == 0 else np.uint32).sum(dtype=np.uint64))
    return json.dumps(sums)
