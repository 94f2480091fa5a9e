"""Write files so that they are whole or absent, even if the process dies. Errors of the system become UserError."""

import contextlib
import hashlib
import json
import os
import pathlib
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator

import filelock

from knnprompt_jax import errors

_LONGEST_ENDING = ".progress.writing.lock"  # The longest ending that a file beside an output adds to its name.
_SETTLED_NS = 2_000_000_000  # A file that changed more recently may change again without a new time of modification.


@contextlib.contextmanager
def lock(path: pathlib.Path, named: pathlib.Path | None = None, timeout: float = 0) -> Iterator[None]:
    """Lock `path` against other processes and threads; raises UserError if one of them holds it for `timeout` seconds.

    The lock is the empty file `.<name>.lock` beside `path` (beside the target of a link). It is removed at the end, and one that a
    killed process left locks nothing. A missing folder is made. In a run of several processes, process 0 locks for all of them:
    `with parallel.enter_in_main(files.lock(path)): ...`

    Args:
        named: the path that errors name instead of `path`.
    """
    display, name = named or path, _sibling(path, "lock")
    holder = filelock.FileLock(name, timeout=timeout)
    try:
        name.parent.mkdir(parents=True, exist_ok=True)
        holder.acquire()
    except filelock.Timeout:
        check_writable(name.parent, folder=True)  # filelock raises Timeout, too, where no file can be made.
        raise errors.Busy(f"{display}: another process is writing to it") from None
    except FileExistsError as error:  # From mkdir.
        raise errors.UserError(f"{display}: {name.parent} is a file, not a folder") from error
    except OSError as error:
        raise errors.UserError(f"{display}: {refusal(error)}") from error
    try:
        yield
    finally:
        try:  # Before the release: a process that has opened the file sees, once it has the lock, that the file is gone.
            with contextlib.suppress(OSError):
                name.unlink()
        finally:
            holder.release()


@contextlib.contextmanager
def new_file(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a path to write to, and move the written file to `path` at the end. After an exception `path` is unchanged.

    A link is followed. Raises UserError if the system refuses (full disk, read-only folder, …).
    """
    unfinished = draft(path)
    with lock(unfinished, path), refusals(path):
        try:
            yield unfinished
            finish_file(path)
        finally:
            unfinished.unlink(missing_ok=True)


def write(path: pathlib.Path, content: str | bytes) -> None:
    """Write a file with `new_file`, text in UTF-8, and make its folder; raise UserError if the system refuses."""
    with new_file(path) as unfinished:
        unfinished.write_bytes(content if isinstance(content, bytes) else content.encode())


def finish_file(path: pathlib.Path) -> None:
    """Move the draft to `path`, replacing an earlier file."""
    unfinished = draft(path)
    with refusals(path):
        _sync(unfinished)
        unfinished.replace(real(path))
        _sync(unfinished.parent)


def check_writable(path: pathlib.Path, *, folder: bool = False, num_bytes: int = 0) -> None:
    """Raise UserError unless `path` (with `folder`: a file in the folder `path`) can be written. Nothing is left behind.

    Missing folders are no error. Call it before the work whose results go there.

    Raises:
        UserError: `path` is of another kind or a broken link; the system refuses; or fewer than `num_bytes` are free.
    """
    place = real(path)
    try:
        for part in (path, *path.parents):
            if part.is_symlink() and not part.exists():
                raise errors.UserError(f"{path}: {part} is a link to {part.readlink()}, which does not exist")
        if place.exists() and not (place.is_dir() or place.is_file()):
            raise errors.UserError(f"{path}: it is neither a file nor a folder, and would be replaced")
        if place.exists() and place.is_dir() != folder:
            found, needed = ("a folder", "a file") if place.is_dir() else ("a file", "a folder")
            raise errors.UserError(f"{path}: it is {found}, and {needed} is needed")
        nearest = next(part for part in (place, *place.parents) if part.exists() and (folder or part != place))
        if not nearest.is_dir():
            raise errors.UserError(f"{path}: {nearest} is a file, not a folder")
        with tempfile.NamedTemporaryFile(prefix=place.name, suffix=_LONGEST_ENDING, dir=nearest):
            free = shutil.disk_usage(nearest).free
    except OSError as error:
        raise errors.UserError(f"{path}: {error.strerror}") from error
    if free < num_bytes:
        raise errors.UserError(f"{path}: {num_bytes:,} bytes are needed, and {free:,} are free")


def user_cache() -> pathlib.Path | None:
    """Return the folder for results that can be recomputed: KNNPROMPT_CACHE, or `knnprompt_jax` in the user's cache folder (XDG).

    None if KNNPROMPT_CACHE=off, or the folder cannot be made or written to.
    """
    given, base = os.environ.get("KNNPROMPT_CACHE", ""), os.environ.get("XDG_CACHE_HOME", "")
    if given == "off":
        return None
    home = pathlib.Path(base if os.path.isabs(base) else os.path.expanduser("~/.cache"))
    folder = pathlib.Path(os.path.expanduser(given)) if given else home / "knnprompt_jax"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def remove_oldest(paths: Iterable[pathlib.Path], max_bytes: int, kept_since_ns: int) -> None:
    """Remove files that were used longest ago until the files have at most `max_bytes`; keep those used since that time."""
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
    """Return the SHA-256 (hex) of a file; the user's cache folder remembers it until the file's path, size or times change."""
    stat, cache = file.stat(), user_cache()
    state = json.dumps([os.path.realpath(file), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns])
    memory = cache / "file_hashes" / hashlib.sha256(state.encode()).hexdigest() if cache else None
    with contextlib.suppress(OSError, ValueError):
        if memory and re.fullmatch("[0-9a-f]{64}", known := memory.read_text(encoding="ascii")):
            return known
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if memory and max(stat.st_mtime_ns, stat.st_ctime_ns) < time.time_ns() - _SETTLED_NS:
        with contextlib.suppress(errors.UserError):  # The memory only saves time.
            write(memory, digest)
    return digest


@contextlib.contextmanager
def refusals(path: pathlib.Path) -> Iterator[None]:
    """Turn errors of the system into UserError with the path and the reason."""
    try:
        yield
    except OSError as error:
        raise errors.UserError(refusal(error, path)) from error
    except ValueError as error:
        if not (code := re.search(r"os_error_code='(\d+)'", str(error))):  # TensorStore's form.
            raise
        raise errors.UserError(f"{path}: {os.strerror(int(code[1]))}") from error


def refusal(error: OSError, path: pathlib.Path | None = None) -> str:
    """Return what the system refused and why; `path` is named if the error names no file."""
    named = path if error.filename is None else error.filename
    reason = error.strerror or str(error)
    return reason if named is None else f"{named}: {reason}"


def real(path: pathlib.Path) -> pathlib.Path:
    """Return the absolute path without links; raises UserError for a path that cannot be one, and for the root folder."""
    if "\0" in str(path):
        raise errors.UserError(f"{str(path)!r}: a path has no NUL characters")
    with refusals(path):
        place = pathlib.Path(os.path.realpath(path))
    if not place.name:
        raise errors.UserError(f"{path}: it is the root folder")
    return place


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
