"""Files and folders that are whole or not there at all, whenever the process dies."""

import contextlib
import os
import pathlib
import shutil
from collections.abc import Iterator


@contextlib.contextmanager
def new_file(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A path to write to; afterwards what was written is at `path`, in place of an earlier file, or nothing after an exception."""
    unfinished = draft(path)
    try:
        yield unfinished
        _to_disk(unfinished)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    _to_disk(path.parent)


def begin_folder(path: pathlib.Path) -> pathlib.Path:
    """An empty folder beside `path`, to be filled and then put there by `finish_folder`."""
    unfinished = draft(path)
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    return unfinished


def finish_folder(path: pathlib.Path) -> None:
    """Puts the filled folder at `path`, in place of an earlier one."""
    unfinished, earlier = draft(path), _earlier(path)
    for file in (unfinished, *unfinished.rglob("*")):
        _to_disk(file)
    if path.exists():
        path.rename(earlier)
    unfinished.rename(path)
    _to_disk(path.parent)
    shutil.rmtree(earlier, ignore_errors=True)


def recover(path: pathlib.Path) -> None:
    """Puts the earlier folder back, should a process have died after it was moved away and before the new one came.

    No other process may be writing there.
    """
    earlier = _earlier(path)
    if path.exists():
        shutil.rmtree(earlier, ignore_errors=True)
    elif earlier.exists():
        earlier.rename(path)


def draft(path: pathlib.Path) -> pathlib.Path:
    """Where the file or folder is while it is being written."""
    return path.with_name(f".{path.name}.writing")


def _earlier(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(f".{path.name}.replaced")


def _to_disk(path: pathlib.Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
