"""A process of another library. Two libraries in one process would compete for its cores.

The process imports this module and the library, but not JAX.
"""

import functools
import importlib
import multiprocessing
import os
import time
from concurrent import futures
from typing import Any

from knnprompt_jax.common import errors

SETTLE_SECONDS = 0.3  # Threads of a finished parallel region spin for up to 0.2 s.


class PeerProcess:
    """A process that calls methods of a module's class `Peers`; it starts with the first call."""

    def __init__(self, title: str, module: str):
        self.title = title
        self.module = module
        context = multiprocessing.get_context("spawn")
        self.pool = futures.ProcessPoolExecutor(1, context, initializer=silence)

    def call(self, method: str, returns_result: bool = False, **arguments: Any) -> tuple[float, Any]:
        """Call a method of `Peers`; return its seconds, and its result if `returns_result`.

        Raises:
            UserError: the method failed, or the process ended.
        """
        try:
            answer = self.pool.submit(call, self.module, method, returns_result, **arguments).result()
        except Exception as error:  # Any exception of the library.
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            raise errors.UserError(f"{self.title}, {method}: {reason}") from error
        time.sleep(SETTLE_SECONDS)
        return answer

    def time(self, method: str) -> float:
        """Call a method and return its seconds."""
        return self.call(method)[0]


def silence() -> None:
    """Drop what libraries print on standard error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def call(module: str, method: str, returns_result: bool = False, **arguments: Any) -> tuple[float, Any]:
    """Call a method of the module's `Peers` in this process; return its seconds, and its result if `returns_result`."""
    peers = _peers(module)
    started = time.perf_counter()
    result = getattr(peers, method)(**arguments)
    return time.perf_counter() - started, result if returns_result else None


@functools.cache
def _peers(module: str) -> Any:
    return importlib.import_module(module).Peers()
