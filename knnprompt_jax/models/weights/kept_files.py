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
from collections.abc import Callable
from importlib import metadata
from typing import TypeVar

from knnprompt_jax import errors, files
from knnprompt_jax.models.weights import tensor_files

Part = TypeVar("Part")
MAX_BYTES = 4 * 2**30  # Of all files; those used longest ago are removed.
_FOLDERS = ("models", "lm")  # Their code computes the parts: `models` the converted files, both the prefixes.
_PACKAGES = (
    *("einops", "flax", "gguf", "jax", "jaxlib", "ml_dtypes"),
    *("numpy", "safetensors", "tokenizers", "transformers"),
)


def keep(
    file: pathlib.Path,
    ending: str,
    compute: Callable[[], Part],
    dump: Callable[[Part], str],
    load: Callable[[bytes], Part],
) -> Part:
    """Return a part of a model's file: from the cache folder or, if it is missing or damaged there, computed.

    `dump` returns the content of the kept file, and `load` is its inverse.
    """
    path = path_of(file, ending) if file.is_file() else None
    if path is None:  # `compute` reports a missing file.
        return compute()
    with contextlib.suppress(Exception):  # Missing or damaged; `tokenizers` raises nothing narrower.
        return load(path.read_bytes())
    part = compute()
    with contextlib.suppress(errors.UserError):
        files.write(path, dump(part))
    return part


def path_of(file: pathlib.Path, ending: str) -> pathlib.Path | None:
    """Return the path of a computed part of a model's file or folder; None if there is no cache folder."""
    return path_named(tensor_files.fingerprint(file), ending) if files.find_cache_folder() else None


def path_named(fingerprint: str, ending: str) -> pathlib.Path | None:
    """Return the path of a computed part of the model with this fingerprint; None if there is no cache folder."""
    cache = files.find_cache_folder()
    if cache is None:
        return None
    content = json.dumps([fingerprint, _code()])
    return cache / "converted" / f"{hashlib.sha256(content.encode()).hexdigest()}.{ending}"


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
