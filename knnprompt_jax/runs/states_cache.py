"""States of prompts on disk, beside the results: what one run has read, no other run reads again.

A file holds the states of some prompts and is never changed: it is whole or not there. So processes and hosts share a folder without a
lock. The files that were used longest ago go where all together are larger than the bound.
"""

import collections
import contextlib
import dataclasses
import hashlib
import os
import pathlib
import zipfile
import zlib

import numpy as np
from absl import logging

from knnprompt_jax import errors, files
from knnprompt_jax.prompts import layout

_FORMAT = 1  # Of the files, and of what a pass computes: raised where either changes.
_KEY_BYTES = 32
# RuntimeError is zipfile's, of a file that seems encrypted, or compressed by a method that it does not know.
_DAMAGED = (ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)


def keys_of(prompts: layout.Prompts, model: str) -> np.ndarray:
    """SHA-256 of each prompt's tokens and of the model's identity [N, 32] (uint8), in the order of the queries."""
    keys = np.zeros((prompts.num_prompts, _KEY_BYTES), np.uint8)
    identity = f"{_FORMAT} {model} ".encode()
    for group in prompts.groups:
        begun = hashlib.sha256(identity + np.asarray(group.prefix_P, np.int32).tobytes())
        for place, suffix in zip(group.index, group.suffixes, strict=True):
            digest = begun.copy()
            digest.update(np.asarray(suffix, np.int32).tobytes())
            keys[place] = np.frombuffer(digest.digest(), np.uint8)
    return keys


class StatesCache:
    """The files of a folder, which is made when there is something to keep; together at most `most_bytes`, none of them where that is 0."""

    def __init__(self, folder: pathlib.Path, most_bytes: int):
        self.folder, self.most_bytes = folder, most_bytes
        self._known: set[pathlib.Path] = set()
        self._places: dict[bytes, tuple[pathlib.Path, int]] = {}

    def find(self, keys_N: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Which prompts are there [N], and the rows of these [n, `width`] (float32). A file that is damaged is removed."""
        self._look_for_files()
        by_path: dict[pathlib.Path, list[tuple[int, int]]] = collections.defaultdict(list)
        for place, key in enumerate(keys_N):
            if held := self._places.get(key.tobytes()):
                by_path[held[0]].append((place, held[1]))
        there_N, rows_NF = np.zeros(len(keys_N), bool), np.zeros((len(keys_N), width), np.float32)
        for path, wanted in by_path.items():
            kept_NF = _array(path, "rows_NF", (np.float32, width))
            if kept_NF is not None:
                places, rows = map(list, zip(*wanted, strict=True))
                there_N[places], rows_NF[places] = True, kept_NF[rows]
                with contextlib.suppress(OSError):
                    os.utime(path)  # It is the one that was used last.
        return there_N, rows_NF[there_N]

    def keep(self, keys_N: np.ndarray, rows_NF: np.ndarray) -> None:
        """Writes the rows of prompts [N, F] (float32); what the system refuses is a warning, since the run needs none of it."""
        path = self.folder / f"{hashlib.sha256(keys_N.tobytes()).hexdigest()}.npz"
        try:
            with files.refusals(path):
                self.folder.mkdir(parents=True, exist_ok=True)
            with files.new_file(path) as unfinished, unfinished.open("wb") as file:
                np.savez(file, allow_pickle=False, keys_N=keys_N, rows_NF=rows_NF.astype(np.float32))
            self._remove_oldest()
        except errors.UserError as error:
            logging.warning("states are not kept: %s", error)

    def _look_for_files(self) -> None:
        """Learns what the files hold that have come since the last look; their names say that they never change."""
        for path in sorted({*self.folder.glob("*.npz")} - self._known):
            self._known.add(path)
            keys_N = _array(path, "keys_N", (np.uint8, _KEY_BYTES))
            for row, key in enumerate(keys_N if keys_N is not None else ()):
                self._places[key.tobytes()] = path, row

    def _remove_oldest(self) -> None:
        found = []
        for path in self.folder.glob("*.npz"):
            with contextlib.suppress(FileNotFoundError):  # Another process has removed it.
                found.append((path.stat().st_mtime_ns, path.stat().st_size, path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self.most_bytes:
                break
            path.unlink(missing_ok=True)
            total -= size


def _array(path: pathlib.Path, name: str, kind: tuple[type, int]) -> np.ndarray | None:
    """An array of a file, of this type and so many columns; None where it cannot be read. A checksum stands beside each array: a file
    with an array that does not fit its own is removed."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            array = arrays[name]
        if (array.dtype, *array.shape[1:]) != kind:
            raise ValueError(f"{name} is {array.dtype} {array.shape}")
        return array
    except OSError:
        return None
    except _DAMAGED as error:
        logging.warning("%s: damaged, and removed: %s", path, error)
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        return None


def without(prompts: layout.Prompts, there_N: np.ndarray) -> layout.Prompts:
    """The prompts that are not there, numbered anew in the same order."""
    missing = np.flatnonzero(~there_N)
    groups = []
    for group in prompts.groups:
        members = np.flatnonzero(np.isin(group.index, missing))
        if members.size:
            part = group.take(members)
            groups.append(dataclasses.replace(part, index=np.searchsorted(missing, part.index)))
    return layout.Prompts(tuple(groups), len(missing), demonstrations=prompts.demonstrations)
