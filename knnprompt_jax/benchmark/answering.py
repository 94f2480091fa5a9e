"""The program of another library's process. It needs neither JAX nor the rest of this package."""

import functools
import importlib
import os
import time
from typing import Any


def silence() -> None:
    """Drop what libraries print on standard error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def call(module: str, method: str, is_wanted: bool = False, **arguments: Any) -> tuple[float, Any]:
    """Call a method of the module's `Peers`; return the seconds it took, and its result if that is wanted."""
    peers = _peers(module)
    started = time.perf_counter()
    result = getattr(peers, method)(**arguments)
    return time.perf_counter() - started, result if is_wanted else None


@functools.cache
def _peers(module: str) -> Any:
    return importlib.import_module(module).Peers()
