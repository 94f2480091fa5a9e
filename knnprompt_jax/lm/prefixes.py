"""Keys and values of demonstrations in the user's cache folder: they take longer to compute than one text after them.

Only float32 models on one CPU keep them. Accelerators compute them faster than they read them from a disk.
"""

import functools
import hashlib
import pathlib
import platform

import numpy as np

from knnprompt_jax.models import attention
from knnprompt_jax.models.weights import kept_arrays, kept_files
from knnprompt_jax.prompts import packing

_MAX_BYTES = kept_files.MAX_BYTES // 8  # Of one file.


def path_of(fingerprint: str, packed: packing.PackedPrompts) -> pathlib.Path | None:
    """Return the path for the prefix of a model; None if there is no cache folder."""
    tokens_P = np.array([packed.prefix_length, *packed.prefix_P], np.int32)
    digest = hashlib.sha256(_processor().encode() + tokens_P.tobytes()).hexdigest()
    return kept_files.path_named(fingerprint, f"{digest}.prefix.safetensors")


def read(path: pathlib.Path, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the keys and values [L, G, P, K]; None if the file is missing or damaged."""
    found = kept_arrays.read(path, {"k": shape, "v": shape})
    return (found["k"].view(), found["v"].view()) if found else None


def keep(path: pathlib.Path, prefix: attention.Prefix) -> None:
    """Write the keys and values of a prefix, if that is possible and they are not too large."""
    if prefix.k.nbytes + prefix.v.nbytes <= _MAX_BYTES:
        kept_arrays.write(path, {"k": np.asarray(prefix.k), "v": np.asarray(prefix.v)})


@functools.cache
def _processor() -> str:
    """Return the kind of this machine's processor: its vector instructions decide the last bits of sums."""
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    described = {line for line in lines if line.startswith(("model name", "flags", "Features"))}
    return "\n".join([platform.machine(), *sorted(described)])
