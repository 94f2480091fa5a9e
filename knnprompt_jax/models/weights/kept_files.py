"""Computed parts of models in the user's cache folder: configuration, tokenizer and weights of GGUF files, prefixes.

The name of a file holds a hash of everything that decides its content: the model, the code that computes it and the
packages that this code uses. Without a cache folder, every run computes anew.
"""

import contextlib
import functools
import hashlib
import json
import os
import pathlib
import time
from importlib import metadata

from knnprompt_jax import errors, files
from knnprompt_jax.models.weights import tensor_files

MAX_BYTES = 4 * 2**30  # Of all files; those used longest ago are removed.
_FOLDERS = ("models", "lm")  # Their code computes the parts: `models` the converted files, both the prefixes.
_PACKAGES = (
    *("einops", "flax", "gguf", "jax", "jaxlib", "ml_dtypes"),
    *("numpy", "safetensors", "tokenizers", "transformers"),
)


def path_of(file: pathlib.Path, ending: str) -> pathlib.Path | None:
    """Return the path of a computed part of a model's file or folder; None if there is no cache folder."""
    cache = files.find_cache_folder()
    if cache is None:
        return None
    content = json.dumps([tensor_files.fingerprint(file), _code()])
    return cache / "converted" / f"{hashlib.sha256(content.encode()).hexdigest()}.{ending}"


def read(path: pathlib.Path | None) -> bytes | None:
    """Return the content of a converted part; None if the file is missing."""
    if path is None:
        return None
    with contextlib.suppress(OSError):
        return path.read_bytes()
    return None


def write(path: pathlib.Path | None, content: str) -> None:
    """Write a converted part, if that is possible."""
    if path is not None:
        with contextlib.suppress(errors.UserError):
            files.write(path, content)


def mark_used(path: pathlib.Path) -> None:
    """Mark a file as used now, and remove those used longest ago if all are too large."""
    with contextlib.suppress(OSError):
        os.utime(path)
        files.remove_oldest(path.parent.glob("*"), MAX_BYTES, time.time_ns())


@functools.cache
def _code() -> str:
    """Return the SHA-256 of the code of models and their passes, and of the versions of the packages that it uses."""
    package = pathlib.Path(__file__).parents[2]
    digest = hashlib.sha256(json.dumps([metadata.version(name) for name in _PACKAGES]).encode())
    for folder in _FOLDERS:
        for path in sorted((package / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()
