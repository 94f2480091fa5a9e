"""How a process ends when JAX loses another of the same run: in one line, with exit status 2 and without a core dump."""

import ctypes
import os
import re
import signal
import sys
import types
from typing import Any, NoReturn

import jax

# What errors of collective operations say when a process that takes part in them is gone.
_SIGNS = re.compile("Gloo|NCCL|UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED|heartbeat|Connection (closed|reset)")
_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int)
_installed: list[Any] = []  # What C calls has to stay.


def end_in_one_line(process: int, num_processes: int) -> None:
    """From now on this process, one of several that JAX has joined, ends so when another is lost.

    JAX tells of it in two ways: a collective operation raises an error, or a thread of its own calls abort(). Its client takes a
    callback in place of the latter, but cannot call one that is written in Python (jaxlib 0.10: std::bad_cast). So the signal of
    abort() is caught, in C, since Python's handlers run only after abort() has returned.
    """
    other = f"process {1 - process}" if num_processes == 2 else "another process, which JAX's lines above name,"
    line = f"error: process {process} of {num_processes}: {other} was lost; finished work is kept: the same commands go on\n"

    def end(*_: Any) -> NoReturn:
        os.write(2, line.encode())
        os._exit(2)  # JAX would wait for the lost process otherwise.

    def told(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
        if isinstance(error, jax.errors.JaxRuntimeError) and _SIGNS.search(str(error)):
            end()
        earlier(kind, error, trace)

    earlier, sys.excepthook = sys.excepthook, told
    handler = _Handler(end)
    _installed.append(handler)
    ctypes.CDLL(None).signal(signal.SIGABRT, handler)
