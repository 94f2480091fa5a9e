"""Files and folders that are whole or not there at all, whenever the process dies; what the system refuses is a UserError."""

import contextlib
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Iterator

import filelock

from knnprompt_jax import errors


@contextlib.contextmanager
def lock(path: pathlib.Path) -> Iterator[None]:
    """Holds `path` against other processes and threads, or raises UserError at once where one of them holds it.

    What is held is the empty file `.<name>.lock` beside `path` (beside its target, if it is a link), which goes away at the end.
    What a killed process leaves of it holds nothing. The folder is made where there is none. In a run of several processes,
    process 0 holds it for all of them: `with parallel.by_main(files.lock(path)): ...`
    """
    with _locked(path, path):
        yield


@contextlib.contextmanager
def new_file(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A path to write to; afterwards what was written is at `path`, in place of an earlier file, or nothing after an exception.

    A link is followed. Raises UserError where the system refuses (the disk is full, the folder is read-only, …).
    """
    unfinished = draft(path)
    with _locked(unfinished, path), refusals(path):
        try:
            yield unfinished
            finish_file(path)
        finally:
            unfinished.unlink(missing_ok=True)


def finish_file(path: pathlib.Path) -> None:
    """Puts the draft at `path`, in place of an earlier file."""
    unfinished = draft(path)
    with refusals(path):
        _to_disk(unfinished)
        unfinished.replace(real(path))
        _to_disk(unfinished.parent)


def begin_folder(path: pathlib.Path) -> pathlib.Path:
    """An empty folder beside `path`, to be filled and then put there by `finish_folder`."""
    unfinished = draft(path)
    with refusals(path):
        remove_folder(unfinished)
        unfinished.mkdir(parents=True)
    return unfinished


def finish_folder(path: pathlib.Path) -> None:
    """Puts the filled folder at `path`, in place of an earlier one; a link to that stays."""
    unfinished, earlier, place = draft(path), replaced(path), real(path)
    with refusals(path):
        for file in (unfinished, *unfinished.rglob("*")):
            _to_disk(file)
        if place.exists():
            remove_folder(earlier)
            place.rename(earlier)
        unfinished.rename(place)
        _to_disk(place.parent)
        remove_folder(earlier)


def recover(path: pathlib.Path) -> None:
    """Puts the earlier folder back, should a process have died after it was moved away and before the new one came.

    No other process may be writing there.
    """
    earlier, place = replaced(path), real(path)
    with refusals(path):
        if place.exists():
            remove_folder(earlier)
        elif earlier.exists():
            earlier.rename(place)


def remove_folder(path: pathlib.Path) -> None:
    """Removes a folder, if there is one, such that no process ever sees a part of it at `path`."""
    removed = path.with_name(f".{path.name}.removed")
    shutil.rmtree(removed, ignore_errors=True)
    if path.exists():
        path.rename(removed)
        shutil.rmtree(removed, ignore_errors=True)


def check_writable(path: pathlib.Path, *, folder: bool = False, num_bytes: int = 0) -> None:
    """Returns where the file `path`, or with `folder` a file in the folder `path`, can be written; nothing is left behind.

    Folders that are missing can be made later. Call it before the work whose results go there.

    Raises:
        UserError: something of another kind, or a link to nothing, is there; the system refuses; or fewer than `num_bytes` are free.
    """
    try:
        nearest = _nearest_folder(path, folder)
        _check_names(path, nearest)
        with tempfile.TemporaryFile(dir=nearest):
            free = shutil.disk_usage(nearest).free
    except OSError as error:
        raise errors.UserError(f"{path}: {error.strerror}") from error
    if free < num_bytes:
        raise errors.UserError(f"{path}: {num_bytes:,} bytes are needed, and {free:,} are free")


def _nearest_folder(path: pathlib.Path, folder: bool) -> pathlib.Path:
    """Of the folders of a path the first that is there; raises UserError or OSError where what is wanted cannot be in it."""
    place = real(path)
    for part in (path, *path.parents):
        if part.is_symlink() and not part.exists():
            raise errors.UserError(f"{path}: {part} is a link to {part.readlink()}, which is not there")
    if place.exists() and not (place.is_dir() or place.is_file()):
        raise errors.UserError(f"{path}: it is neither a file nor a folder, and would be replaced")
    nearest = next(part for part in (place, *place.parents) if part.exists() and (folder or part != place))
    if place.exists() and place.is_dir() != folder:
        is_there, needed = ("a folder", "a file") if place.is_dir() else ("a file", "a folder")
        raise errors.UserError(f"{path}: it is {is_there}, and {needed} is needed")
    if not nearest.is_dir():
        raise errors.UserError(f"{path}: {nearest} is a file, and no folder")
    return nearest


def _check_names(path: pathlib.Path, nearest: pathlib.Path) -> None:
    """Raises UserError or OSError where a name is too long of those that are made of this one."""
    place, added = real(path), len("....progress.writing.lock")
    size, most = len(os.fsencode(place.name)), os.pathconf(nearest, "PC_NAME_MAX")
    if size + added > most:
        raise errors.UserError(
            f"{path}: File name too long: it has {size} bytes, and at most {most - added} are possible, for files beside it "
            "have longer names"
        )
    with contextlib.suppress(FileNotFoundError):
        os.lstat(place.with_name(f"...{place.name}.progress.writing.lock"))


def user_cache() -> pathlib.Path | None:
    """Return the folder for what can be computed again: KNNPROMPT_CACHE, or `knnprompt_jax` in the user's cache folder (XDG).

    None if KNNPROMPT_CACHE=off or the folder cannot be made or written to.
    """
    given, base = os.environ.get("KNNPROMPT_CACHE", ""), os.environ.get("XDG_CACHE_HOME", "")
    if given == "off":
        return None
    home = pathlib.Path(base if os.path.isabs(base) else os.path.expanduser("~/.cache"))
    folder = pathlib.Path(given) if given else home / "knnprompt_jax"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


@contextlib.contextmanager
def refusals(path: pathlib.Path) -> Iterator[None]:
    """Raises UserError with the path and the reason where the system refuses what is done to `path`."""
    try:
        yield
    except OSError as error:
        raise errors.UserError(refusal(error, path)) from error
    except ValueError as error:
        if not (code := re.search(r"os_error_code='(\d+)'", str(error))):  # As TensorStore tells of it.
            raise
        raise errors.UserError(f"{path}: {os.strerror(int(code[1]))}") from error


def refusal(error: OSError, path: pathlib.Path | None = None) -> str:
    """What the system refused and why; `path` is named where the error names none."""
    named = path if error.filename is None else error.filename
    reason = error.strerror or str(error)
    return reason if named is None else f"{named}: {reason}"


def draft(path: pathlib.Path) -> pathlib.Path:
    """Where the file or folder is while it is being written."""
    return _beside(path, "writing")


def real(path: pathlib.Path) -> pathlib.Path:
    """The absolute path without links; raises UserError where there is none, or it is the root of all folders."""
    if "\0" in str(path):
        raise errors.UserError(f"{str(path)!r}: a path has no NUL characters")
    with refusals(path):
        place = pathlib.Path(os.path.realpath(path))
    if not place.name:
        raise errors.UserError(f"{path}: it is the root of all folders")
    return place


def replaced(path: pathlib.Path) -> pathlib.Path:
    """Where the earlier folder is while `finish_folder` puts another in its place."""
    return _beside(path, "replaced")


def _beside(path: pathlib.Path, kind: str) -> pathlib.Path:
    place = real(path)
    return place.with_name(f".{place.name}.{kind}")


@contextlib.contextmanager
def _locked(held: pathlib.Path, path: pathlib.Path) -> Iterator[None]:
    """Locks `held`; errors name `path`."""
    name = _beside(held, "lock")
    holder = filelock.FileLock(name, timeout=0)
    with contextlib.ExitStack() as stack:
        try:
            name.parent.mkdir(parents=True, exist_ok=True)
            holder.acquire()
        except filelock.Timeout:
            check_writable(name.parent, folder=True)  # filelock says so, too, where no file can be made.
            raise errors.UserError(f"{path}: another process is writing to it") from None
        except FileExistsError as error:  # As mkdir has it.
            raise errors.UserError(f"{path}: {name.parent} is a file, and no folder") from error
        except OSError as error:
            raise errors.UserError(f"{path}: {refusal(error)}") from error
        stack.callback(holder.release)
        stack.callback(_remove_lock, name)
        yield


def _remove_lock(name: pathlib.Path) -> None:
    # Those who open it now see, once they hold it, that it is gone from the folder.
    with contextlib.suppress(OSError):
        name.unlink()


def _to_disk(path: pathlib.Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
