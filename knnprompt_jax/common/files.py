"""Whole or absent files, even if the process dies, and the user's cache folder. Errors of the system become UserError.

Compiled programs are kept in the cache folder, so that no command compiles a large program again. JAX's own cache does
the work: the name of an entry is a hash of the program, the compiler's options and version, and the devices.
"""

import contextlib
import functools
import hashlib
import json
import os
import pathlib
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from importlib import metadata

import filelock
from absl import logging

from knnprompt_jax.common import errors

_LONGEST_ENDING = ".progress.writing.lock"  # The longest ending that a file beside an output adds to its name.
_MAX_PROGRAM_BYTES = 2**30  # Beyond this the least recently used compiled programs are removed.
_MIN_SECONDS = 0.05  # Programs that compile faster are not kept: JAX visits every entry whenever it writes one.
_SETTLED_NS = 2_000_000_000  # A file that changed more recently may change again without a new time of modification.


@contextlib.contextmanager
def lock(path: pathlib.Path, named: pathlib.Path | None = None, timeout: float = 0) -> Iterator[None]:
    """Lock `path` against other processes and threads.

    The lock is the empty file `.<name>.lock` beside `path` (beside the target of a link). It is removed at the end; a
    file that a killed process left locks nothing. A missing folder is made. In a job of several processes, process 0
    locks for all of them: `with parallel.enter_in_main(files.lock(path)): ...`

    Args:
        path: the file to lock.
        named: the path that errors name instead of `path`.
        timeout: the seconds to wait for another process or thread that holds the lock.

    Raises:
        UserError: the lock is held for `timeout` seconds (`Busy`), or cannot be made.
    """
    display = named or path
    lock_path = _sibling(path, "lock")
    holder = filelock.FileLock(lock_path, timeout=timeout)
    try:
        lock_path.parent.mkdir(parents=True, exist_ok=True)
        holder.acquire()
    except filelock.Timeout:
        check_writable(lock_path.parent, folder=True)  # filelock also raises Timeout where no file can be made.
        raise errors.Busy(f"{display}: another process is writing to it") from None
    except OSError as error:
        raise errors.UserError(f"{display}: {refusal(error)}") from error
    try:
        yield
    finally:
        # The file is removed before the release, so that a process that waits for it notices that it is gone.
        with contextlib.suppress(OSError):
            lock_path.unlink()
        holder.release()


@contextlib.contextmanager
def new_file(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a path to write to, and move the written file to `path` at the end. After an exception `path` is unchanged.

    A link is followed.

    Raises:
        UserError: the system refuses (full disk, read-only folder, …).
    """
    unfinished = draft(path)
    with lock(unfinished, path), refusals(path):
        try:
            yield unfinished
            finish_file(path)
        finally:
            unfinished.unlink(missing_ok=True)


def write(path: pathlib.Path, content: str | bytes) -> None:
    """Write a file as by `new_file`, text in UTF-8, and make its folder; raise UserError if the system refuses."""
    with new_file(path) as unfinished:
        unfinished.write_bytes(content if isinstance(content, bytes) else content.encode())


def finish_file(path: pathlib.Path) -> None:
    """Move the draft to `path`, replacing an earlier file."""
    unfinished = draft(path)
    with refusals(path):
        _sync(unfinished)
        unfinished.replace(real(path))
        _sync(unfinished.parent)


def check_writable(name: str | pathlib.Path, *, folder: bool = False) -> None:
    """Raise UserError unless `name` (with `folder`: a file in the folder `name`) can be written. Leave nothing behind.

    Missing folders are no error. Call it before the work whose results go there.
    """
    path = pathlib.Path(name)
    target = real(path)
    try:
        if target.exists() and not (target.is_dir() if folder else target.is_file()):
            raise errors.UserError(f"{path}: it exists and is not {'a folder' if folder else 'a file'}")
        nearest = next(part for part in (target, *target.parents) if part.exists() and (folder or part != target))
        tempfile.NamedTemporaryFile(prefix=target.name, suffix=_LONGEST_ENDING, dir=nearest).close()
    except OSError as error:  # It names the temporary file.
        raise errors.UserError(f"{path}: {error.strerror}") from error


def expand_home(path: str | pathlib.Path) -> str:
    """Return the path with the home folder in place of a leading `~` or `~user`; raise UserError if there is none."""
    expanded = os.path.expanduser(path) if os.environ.get("HOME", "~") else str(path)  # An empty HOME would be /.
    if expanded.startswith("~"):
        raise errors.UserError(f"{path}: there is no such home folder (a file's name may begin with ./~)")
    return expanded


def find_cache_folder() -> pathlib.Path | None:
    """Return the folder for results that can be recomputed.

    The folder is KNNPROMPT_CACHE, by default `knnprompt_jax` in the user's cache folder (XDG).

    Returns:
        The folder; None if KNNPROMPT_CACHE is off or, after one warning, if the folder has no absolute path, or cannot
        be made or written to.
    """
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    name = os.environ.get("KNNPROMPT_CACHE") or f"{base}/knnprompt_jax"
    return None if name.lower() == "off" else _make_cache_folder(name)


@functools.cache
def _make_cache_folder(name: str) -> pathlib.Path | None:
    try:
        folder = pathlib.Path(expand_home(name))
        if not folder.is_absolute():
            raise errors.UserError(f"{name}: not an absolute path")
        check_writable(folder, folder=True)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # Only the user may write programs that the user runs.
    except errors.UserError as error:
        logging.warning("no cache: %s; set KNNPROMPT_CACHE to the absolute path of a folder, or to off", error)
        return None
    return folder


def keep_programs() -> None:
    """Keep the compiled programs of this process and its children.

    Each version of JAX has a folder of its own. If JAX_COMPILATION_CACHE_DIR is set, or if there is no cache folder,
    nothing changes.
    """
    cache = find_cache_folder()
    if "JAX_COMPILATION_CACHE_DIR" in os.environ or cache is None:
        return
    programs = _make_cache_folder(f"{cache}/compiled/jax-{metadata.version('jax')}")
    if programs is None:
        return
    _remove_torn_entries(programs)
    settings = {
        "jax_compilation_cache_dir": str(programs),
        "jax_compilation_cache_max_size": _MAX_PROGRAM_BYTES,  # Makes JAX read and write entries under a lock.
        "jax_persistent_cache_min_compile_time_secs": _MIN_SECONDS,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    # Where the disk is full or read-only, each program would give a warning of many lines.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")
    for name, value in settings.items():
        os.environ.setdefault(name.upper(), str(value))
    if "jax" in sys.modules:  # JAX has read the environment already.
        import jax

        for name, value in settings.items():
            jax.config.update(name, value)


def _remove_torn_entries(folder: pathlib.Path) -> None:
    """Remove entries that a killed process left incomplete: those without the time of their last use."""
    jax_lock = filelock.FileLock(folder / ".lockfile", timeout=0)
    with contextlib.suppress(filelock.Timeout, OSError), jax_lock:
        for entry in folder.glob("*-cache"):
            if not entry.with_name(f"{entry.name.removesuffix('-cache')}-atime").exists():
                entry.unlink()


def remove_oldest(paths: Iterable[pathlib.Path], max_bytes: int, kept_since_ns: int) -> None:
    """Remove the least recently used files, none used since that time, until the rest has at most `max_bytes`."""
    entries = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # Another process has removed it.
            entries.append((path.stat().st_mtime_ns, path.stat().st_size, path))
    total = sum(size for _, size, _ in entries)
    for used_ns, size, path in sorted(entries):
        if total <= max_bytes or used_ns >= kept_since_ns:
            break
        path.unlink(missing_ok=True)
        total -= size


def sha256(file: pathlib.Path) -> str:
    """Return the SHA-256 (hex) of a file; the user's cache folder keeps it until path, size or times change."""
    status = file.stat()
    cache = find_cache_folder()
    if cache is None:
        return _sha256(file)
    state = json.dumps([os.path.realpath(file), status.st_size, status.st_mtime_ns, status.st_ctime_ns])
    cached = cache / "file_hashes" / hashlib.sha256(state.encode()).hexdigest()
    with contextlib.suppress(OSError):
        return cached.read_text(encoding="ascii")
    digest = _sha256(file)
    if max(status.st_mtime_ns, status.st_ctime_ns) < time.time_ns() - _SETTLED_NS:
        with contextlib.suppress(errors.UserError):  # The cache only saves time.
            write(cached, digest)
    return digest


def _sha256(file: pathlib.Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def refusals(path: pathlib.Path) -> Iterator[None]:
    """Turn errors of the system, and of paths that no system accepts, into UserError with the path and the reason."""
    try:
        yield
    except OSError as error:
        raise errors.UserError(refusal(error, path)) from error


def refusal(error: OSError, path: pathlib.Path | None = None) -> str:
    """Return what the system refused and why; the message names `path` if the error names no file."""
    named = path if error.filename is None else error.filename
    reason = error.strerror or str(error)
    return reason if named is None else f"{named}: {reason}"


def real(path: pathlib.Path) -> pathlib.Path:
    """Return the absolute path without links."""
    with refusals(path):
        return pathlib.Path(os.path.realpath(path))


def draft(path: pathlib.Path) -> pathlib.Path:
    """Return the path of a file while it is being written."""
    return _sibling(path, "writing")


def _sibling(path: pathlib.Path, ending: str) -> pathlib.Path:
    place = real(path)
    return place.with_name(f".{place.name}.{ending}")


def _sync(path: pathlib.Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
