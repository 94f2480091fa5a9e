"""Faults at every call that changes files: the process dies there, the disk is full, or it fails.

A death is an exception after which no call changes anything any more, so that `finally` and `except` cannot tidy up, as
after kill -9. Writing is cut in the middle. What C++ libraries write by themselves is not seen.
"""

import builtins
import contextlib
import dataclasses
import errno
import functools
import io
import itertools
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from knnprompt_jax import errors

KINDS = ("kill", "ENOSPC", "EIO")
_CALLS = ("fsync", "replace", "rename", "unlink", "rmdir", "mkdir", "truncate")
_TAKES_SPACE = ("write", "create", "mkdir", "fsync")
_CHANGES = os.O_CREAT | os.O_TRUNC

Writer = Callable[[pathlib.Path], Any]
Reader = Callable[[pathlib.Path], Any]
REFUSED = "refused with a UserError"


class Killed(BaseException):
    """The process would be gone here."""


@dataclasses.dataclass
class Tally:
    """What became of the faults: the same result after starting again, or one line that says what to do; wrong is neither."""

    tried: int = 0
    survived: int = 0
    refused: int = 0


TALLIES: dict[str, Tally] = {}
"""By the name of what was tried, for the summary of the tests."""


def every_fault(
    name: str,
    folder: pathlib.Path,
    writer: Writer,
    reader: Reader,
    prepare: Writer | None = None,
    *,
    twice: bool = False,
) -> Tally:
    """Runs `writer` with each kind of fault at each call in turn, then again without; every result must be the undisturbed one.

    Args:
        name: for the summary.
        folder: an empty folder; the functions get a folder within it.
        writer: writes to the folder; started again it goes on with what it finds there, or starts over.
        reader: what stands in the folder, to be compared by ==; may raise UserError.
        prepare: makes what is in the folder before.
        twice: also a second fault while `writer` goes on after a first: as many runs as calls squared.

    Raises:
        AssertionError: after a fault, `reader` sees neither what was there before nor the result nor raises UserError; or
            starting again ends neither in the result nor in a UserError; or a fault is told by another exception.
    """
    trial, tally = _Trial(folder, writer, reader, prepare), TALLIES.setdefault(name, Tally())
    trial.run_undisturbed()
    for kind in KINDS:
        run = functools.partial(trial.run, tally, kind)
        for first in _until(run):
            if twice:
                list(_until(functools.partial(run, first)))
    return tally


def _until(run: Callable[[int], bool]) -> Iterator[int]:
    """1, 2, … as long as there are so many calls."""
    return itertools.takewhile(run, itertools.count(1))


@contextlib.contextmanager
def fault(kind: str, at: int) -> Iterator["_Fault"]:
    """The `at`-th call that changes files fails, from 1 on; its `happened` says whether there were as many."""
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

    def comes(self, call: str, half: Callable[[], Any] | None = None) -> bool:
        """Counts a call and raises where it is the one to fail, after `half` of it; False where nothing may change any more."""
        if self.is_dead:
            return False
        self.calls += 1
        now = self.calls == self.at
        if now:
            self.happened = True
            self.is_dead, self.is_full = self.kind == "kill", self.kind == "ENOSPC"
            if half:
                half()
        if now and self.is_dead:
            raise Killed(call)
        if (now and self.kind == "EIO") or (self.is_full and (now or call in _TAKES_SPACE)):
            code = getattr(errno, self.kind)
            raise OSError(code, os.strerror(code))
        return True

    def around(self, call: str, real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **options: real(*args, **options) if self.comes(call) else None

    def os_open(self, real: Callable[..., int]) -> Callable[..., int]:
        def opened(path: Any, flags: int, *args: Any, **options: Any) -> int:
            if flags & _CHANGES and not self.comes("create"):
                raise Killed("create")
            return real(path, flags, *args, **options)

        return opened

    def open(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def opened(file: Any, mode: str = "r", buffering: int = -1, *args: Any, **options: Any) -> Any:
            if not set(mode) & set("wax+") or "opener" in options:  # A temporary file has no name.
                return real(file, mode, buffering, *args, **options)
            if not self.comes("create"):
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
        if self._injected.comes("write", lambda: super(_File, self).write(content[: len(content) // 2])):
            return super().write(content)
        return len(content)  # Lost, like all that a process has not written when it dies.


@dataclasses.dataclass
class _Trial:
    folder: pathlib.Path
    writer: Writer
    reader: Reader
    prepare: Writer | None
    before: Any = None
    result: Any = None

    def run_undisturbed(self) -> None:
        with self._place() as place:
            self.before = self._read(place)
            self.writer(place)
            self.result = self._read(place)
            assert self.result not in (self.before, REFUSED)

    def run(self, tally: Tally, kind: str, *faults: int) -> bool:
        """The writer with these faults, one run after the other, and again without; False where it makes fewer calls."""
        with self._place() as place:
            for at in faults:
                with fault(kind, at) as injected, contextlib.suppress(Killed, errors.UserError):
                    self.writer(place)
            if injected.happened:
                assert self._read(place) in (self.before, self.result, REFUSED), (kind, faults)
                self._run_again(tally, place, (kind, faults))
            return injected.happened

    def _run_again(self, tally: Tally, place: pathlib.Path, told: Any) -> None:
        tally.tried += 1
        try:
            self.writer(place)
        except errors.UserError:
            tally.refused += 1
            assert self._read(place) in (self.before, self.result, REFUSED), told
        else:
            tally.survived += 1
            assert self._read(place) == self.result, told

    @contextlib.contextmanager
    def _place(self) -> Iterator[pathlib.Path]:
        """A new folder, with what is there before."""
        place = self.folder / "place"
        place.mkdir()
        if self.prepare:
            self.prepare(place)
        yield place
        shutil.rmtree(place)

    def _read(self, place: pathlib.Path) -> Any:
        try:
            return self.reader(place)
        except errors.UserError:
            return REFUSED
