"""Caches of states by key: in memory, or on disk for all commands of a user.

In names of arrays, N counts keys, F the numbers of a row, and B the bytes of a key.
"""

import collections
import contextlib
import hashlib
import os
import pathlib
import threading
import time

import numpy as np
from absl import logging

from knnprompt_jax.common import errors, files, parallel

_MIN_ROWS_ON_DISK = 32
KEY_DTYPE = np.dtype("V32")  # A SHA-256.


def open_disk_cache(gigabytes: float, is_capped: bool = False) -> "DiskCache | None":
    """Return the disk cache in process 0's cache folder; None if `gigabytes` (GiB) is 0 or it has no folder.

    Only process 0 reads and writes the cache, but every process must know whether there is one. `is_capped` is an
    argument of `DiskCache`.
    """
    folder = parallel.call_in_main(files.find_cache_folder)
    return DiskCache(folder / "states", int(gigabytes * 2**30), is_capped) if gigabytes and folder else None


class DiskCache:
    """Rows in the files of a folder, together at most `max_bytes`.

    A file holds the rows of one chunk of prompts and never changes, so processes and hosts share a folder without a
    lock. Files that nobody has used for the longest time are removed first, and never those that this process has used.

    Attributes:
        is_durable: whether rows outlive the process.
        is_capped: whether this process keeps at most half of `max_bytes`: for jobs of any length, which do not resume
            from the cache.
    """

    is_durable = True

    def __init__(self, folder: pathlib.Path, max_bytes: int, is_capped: bool = False):
        self.folder = folder
        self.max_bytes = max_bytes
        self.is_capped = is_capped
        self._kept_bytes = 0
        self._started_ns = time.time_ns()
        self._known_files: set[pathlib.Path] = set()
        self._location_by_key: dict[bytes, tuple[pathlib.Path, int]] = {}

    def find(self, keys_N: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Return which keys are cached [N], and rows [N, `width`] (float32), zero where there is none.

        Damaged files are removed.
        """
        for path in sorted({*self.folder.glob("*.npz")} - self._known_files):
            self._known_files.add(path)
            keys_n = _read_array(path, "keys_N", (np.uint8, KEY_DTYPE.itemsize))
            for row, key in enumerate(keys_n if keys_n is not None else ()):
                self._location_by_key[key.tobytes()] = path, row
        rows_by_path: dict[pathlib.Path, list[tuple[int, int]]] = collections.defaultdict(list)
        for index, key in enumerate(keys_N):
            if found := self._location_by_key.get(key.tobytes()):
                rows_by_path[found[0]].append((index, found[1]))
        is_cached_N = np.zeros(len(keys_N), bool)
        rows_NF = np.zeros((len(keys_N), width), np.float32)
        for path, wanted in rows_by_path.items():
            indices, rows = map(list, zip(*wanted, strict=True))
            cached_NF = _read_array(path, "rows_NF", (np.float32, width), max(rows) + 1)
            if cached_NF is not None:
                is_cached_N[indices] = True
                rows_NF[indices] = cached_NF[rows]
                with contextlib.suppress(OSError):
                    os.utime(path)  # The time of its last use.
        return is_cached_N, rows_NF

    def keep(self, keys_N: np.ndarray, rows_NF: np.ndarray) -> None:
        """Write rows [N, F] to a new file. If that fails, log a warning: the job does not need the cache."""
        if self.is_capped and self._kept_bytes + rows_NF.nbytes > self.max_bytes // 2:
            return
        self._kept_bytes += rows_NF.nbytes
        keys_NB = np.frombuffer(keys_N.tobytes(), np.uint8).reshape(len(keys_N), KEY_DTYPE.itemsize)
        path = self.folder / f"{hashlib.sha256(keys_N.tobytes()).hexdigest()}.npz"
        try:
            with files.new_file(path) as draft, draft.open("wb") as file:
                np.savez(file, allow_pickle=False, keys_N=keys_NB, rows_NF=rows_NF.astype(np.float32))
            files.remove_oldest(self.folder.glob("*.npz"), self.max_bytes, self._started_ns)
        except errors.Busy:  # Another process writes the same rows.
            pass
        except (errors.UserError, OSError) as error:
            logging.warning("states are not cached: %s", error)


class MemoryCache:
    """Rows in host memory, for any threads. Beyond `max_bytes`, the least recently used rows are evicted.

    With `disk_bytes`, calls with at least `_MIN_ROWS_ON_DISK` new rows also keep them in the user's cache folder, if
    there is one, for later processes.
    """

    _lock = threading.Lock()  # Shared by all of this class: a cache with a lock of its own could not be pickled.

    def __init__(self, max_bytes: int, disk_bytes: int = 0):
        self.max_bytes = max_bytes
        self._disk_bytes = disk_bytes
        self._disk: DiskCache | None = None
        self._rows: collections.OrderedDict[bytes, np.ndarray] = collections.OrderedDict()
        self._num_bytes = 0

    @property
    def is_durable(self) -> bool:
        """Whether rows outlive the process: process 0 has a cache folder and may use it."""
        return bool(self._disk_bytes) and parallel.call_in_main(files.find_cache_folder) is not None

    def find(self, keys_N: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Return which keys are cached [N], and rows [N, `width`] (float32), zero where there is none."""
        is_cached_N = np.zeros(len(keys_N), bool)
        rows_NF = np.zeros((len(keys_N), width), np.float32)
        with self._lock:
            for index, key in enumerate(keys_N):
                row = self._rows.get(key.tobytes())
                if row is not None and len(row) == width:
                    self._rows.move_to_end(key.tobytes())
                    is_cached_N[index] = True
                    rows_NF[index] = row
            missing = np.flatnonzero(~is_cached_N)
            if missing.size and (disk := self._open_disk()):
                is_cached_N[missing], rows_NF[missing] = disk.find(keys_N[missing], width)
                found = missing[is_cached_N[missing]]
                self._keep_in_memory(keys_N[found], rows_NF[found])
        return is_cached_N, rows_NF

    def keep(self, keys_N: np.ndarray, rows_NF: np.ndarray) -> None:
        """Keep rows [N, F]."""
        with self._lock:
            self._keep_in_memory(keys_N, rows_NF)
            if len(keys_N) >= _MIN_ROWS_ON_DISK and (disk := self._open_disk()):
                disk.keep(keys_N, rows_NF)

    def _keep_in_memory(self, keys_N: np.ndarray, rows_NF: np.ndarray) -> None:
        for key, row in zip(keys_N, rows_NF, strict=True):
            old = self._rows.pop(key.tobytes(), None)
            self._num_bytes -= 0 if old is None else old.nbytes
            self._rows[key.tobytes()] = np.array(row, np.float32)
            self._num_bytes += 4 * len(row)
        while self._num_bytes > self.max_bytes:
            _, row = self._rows.popitem(last=False)
            self._num_bytes -= row.nbytes

    def _open_disk(self) -> DiskCache | None:
        """Return the cache in the present cache folder; None if there is none or `disk_bytes` is 0."""
        folder = files.find_cache_folder() if self._disk_bytes else None
        if folder is None:
            return None
        if self._disk is None or self._disk.folder != folder / "states":
            self._disk = DiskCache(folder / "states", self._disk_bytes, is_capped=True)
        return self._disk


Cache = DiskCache | MemoryCache


def _read_array(path: pathlib.Path, name: str, kind: tuple[type, int], min_rows: int = 0) -> np.ndarray | None:
    """Return an array of at least `min_rows` rows and of this dtype and width, or None; remove a damaged file."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            array = arrays[name]
        if (array.dtype, *array.shape[1:]) != kind or len(array) < min_rows:
            raise ValueError(f"{name} is {array.dtype} {array.shape}")
        return array
    except (OSError, MemoryError):
        return None
    except Exception as error:  # Libraries raise several kinds, e.g. for a header that claims too many rows.
        logging.warning("%s: damaged, and removed: %s", path, error)
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        return None
