"""End a process in one line, with exit status 2 and without a core dump, when JAX loses another process of the same run."""

import ctypes
import os
import re
import signal
import sys
import types
from typing import Any, NoReturn

import jax

# Errors of collective operations contain one of these when a participating process is gone.
_SIGNS = re.compile("Gloo|NCCL|UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED|heartbeat|Connection (closed|reset)")
_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int)
_installed: list[Any] = []  # Keeps the handlers that C calls alive.


def end_in_one_line(process: int, num_processes: int) -> None:
    """Make this process of several end in one line when another is lost.

    A loss shows in two ways: a collective operation raises an error, or a thread of JAX calls abort(). JAX's client accepts a callback
    instead of the latter, but cannot call one written in Python (jaxlib 0.10: std::bad_cast). So abort()'s signal is caught in C,
    because Python's handlers only run after abort() has returned.
    """
    other = f"process {1 - process}" if num_processes == 2 else "another process (see JAX's lines above)"
    line = (
        f"error: process {process} of {num_processes}: {other} died; "
        "finished work is saved: rerun the same commands to resume\n"
    )

    def end(*_: Any) -> NoReturn:
        os.write(2, line.encode())
        os._exit(2)  # JAX would wait for the lost process otherwise.

    def report(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
        if isinstance(error, jax.errors.JaxRuntimeError) and _SIGNS.search(str(error)):
            end()
        default(kind, error, trace)

    default, sys.excepthook = sys.excepthook, report
    handler = _Handler(end)
    _installed.append(handler)
    ctypes.CDLL(None).signal(signal.SIGABRT, handler)
