"""Inject a fault at each call that changes files: the process dies there, the disk is full, or the call fails.

A death is an exception after which no call changes anything, so that `finally` and `except` cannot tidy up, as after
kill -9. A write is cut in the middle. Writes by C++ libraries are not seen.
"""

import builtins
import contextlib
import errno
import io
import itertools
import os
import pathlib
import shutil
import types
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from knnprompt_jax.common import errors

KINDS = ("kill", "ENOSPC", "EIO")
_CALLS = ("fsync", "replace", "rename", "unlink", "rmdir", "mkdir", "truncate")
_TAKES_SPACE = ("write", "create", "mkdir", "fsync")

Step = Callable[[pathlib.Path], Any]
REFUSED = "refused with a UserError"


class Killed(BaseException):
    """The process would have died here."""


def every_fault(
    folder: pathlib.Path, writer: Step, reader: Step, prepare: Step = lambda place: None, *, twice: bool = False
) -> types.SimpleNamespace:
    """Inject each kind of fault at each call of `writer`, rerun it without faults, and compare with the normal result.

    Args:
        folder: an empty folder; the functions get a new folder within it.
        writer: writes to the folder; on a restart it resumes or starts over.
        reader: returns the content of the folder, which is compared by ==; may raise UserError.
        prepare: makes the initial content of the folder.
        twice: also inject a second fault while `writer` resumes after a first.

    Returns:
        The numbers of faults `tried`, `survived` (a restart gave the same result) and `refused` with a UserError.

    Raises:
        AssertionError: after a fault, `reader` returns neither the initial content nor the result nor raises UserError;
            a restart ends neither in the result nor in a UserError; or a fault surfaces as another exception.
    """
    trials = _Trials(folder, writer, reader, prepare)
    for kind in KINDS:
        for first in trials.run_each(kind):
            if twice:
                list(trials.run_each(kind, first))
    return trials.tally


class _Trials:
    """Runs of a writer with faults, and their number by outcome."""

    def __init__(self, folder: pathlib.Path, writer: Step, reader: Step, prepare: Step):
        self.tally = types.SimpleNamespace(tried=0, survived=0, refused=0)
        self._folder = folder
        self._writer = writer
        self._reader = reader
        self._prepare = prepare
        with self._new_place() as place:
            self._before = self._read(place)
            writer(place)
            self._result = self._read(place)
            assert self._result not in (self._before, REFUSED)

    def run(self, kind: str, *faults: int) -> bool:
        """Run the writer with these faults, then again without; return False if it makes fewer calls."""
        with self._new_place() as place:
            for at in faults:
                with fault(kind, at) as injected, contextlib.suppress(Killed, errors.UserError):
                    self._writer(place)
            if not injected.happened:
                return False
            assert self._read(place) in (self._before, self._result, REFUSED), (kind, faults)
            self.tally.tried += 1
            try:
                self._writer(place)
            except errors.UserError:
                self.tally.refused += 1
                assert self._read(place) in (self._before, self._result, REFUSED), (kind, faults)
            else:
                self.tally.survived += 1
                assert self._read(place) == self._result, (kind, faults)
            return True

    def run_each(self, kind: str, *faults: int) -> Iterator[int]:
        """Run with a further fault at each call in turn, and yield the number of the call."""
        for at in itertools.count(1):
            if not self.run(kind, *faults, at):
                return
            yield at

    @contextlib.contextmanager
    def _new_place(self) -> Iterator[pathlib.Path]:
        place = self._folder / "place"
        place.mkdir()
        self._prepare(place)
        yield place
        shutil.rmtree(place)

    def _read(self, place: pathlib.Path) -> Any:
        try:
            return self._reader(place)
        except errors.UserError:
            return REFUSED


@contextlib.contextmanager
def fault(kind: str, at: int) -> Iterator["_Fault"]:
    """Make the `at`-th call that changes files fail (from 1 on); `happened` tells whether there were as many calls."""
    injected = _Fault(kind, at)
    with contextlib.ExitStack() as stack:
        for call in _CALLS:
            stack.enter_context(mock.patch.object(os, call, injected.around(call, getattr(os, call))))
        stack.enter_context(mock.patch.object(os, "open", injected.os_open(os.open)))
        for module in (io, builtins):
            stack.enter_context(mock.patch.object(module, "open", injected.open(io.open)))
        yield injected


class _Fault:
    def __init__(self, kind: str, at: int):
        self.kind, self.at, self.calls = kind, at, 0
        self.happened = self.is_dead = self.is_full = False

    def count(self, call: str, half: Callable[[], Any] = lambda: None) -> bool:
        """Count a call. Raise if it is the one to fail, after `half` of it; return False after the death."""
        if self.is_dead:
            return False
        self.calls += 1
        is_now = self.calls == self.at
        if is_now:
            self.happened = True
            self.is_dead, self.is_full = self.kind == "kill", self.kind == "ENOSPC"
            half()
        if is_now and self.is_dead:
            raise Killed(call)
        if (is_now and self.kind == "EIO") or (self.is_full and (is_now or call in _TAKES_SPACE)):
            code = getattr(errno, self.kind)
            raise OSError(code, os.strerror(code))
        return True

    def around(self, call: str, real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **options: real(*args, **options) if self.count(call) else None

    def os_open(self, real: Callable[..., int]) -> Callable[..., int]:
        def opened(path: Any, flags: int, *args: Any, **options: Any) -> int:
            if flags & (os.O_CREAT | os.O_TRUNC) and not self.count("create"):
                raise Killed("create")
            return real(path, flags, *args, **options)

        return opened

    def open(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def opened(file: Any, mode: str = "r", buffering: int = -1, *args: Any, **options: Any) -> Any:
            if not set(mode) & set("wax+") or "opener" in options:  # A temporary file has no name.
                return real(file, mode, buffering, *args, **options)
            if not self.count("create"):
                raise Killed("create")
            raw = _File(self, file, mode.replace("b", "").replace("t", ""))
            if buffering == 0:
                return raw
            buffered: Any = (io.BufferedRandom if "+" in mode else io.BufferedWriter)(raw)
            return buffered if "b" in mode else io.TextIOWrapper(buffered, *args, **options)

        return opened


class _File(io.FileIO):
    def __init__(self, injected: _Fault, file: Any, mode: str):
        super().__init__(file, mode)
        self._injected = injected

    def write(self, data: Any) -> int:
        content = bytes(data)
        if self._injected.count("write", lambda: super(_File, self).write(content[: len(content) // 2])):
            return super().write(content)
        return len(content)  # Lost, like everything that a dead process has not written.
