"""The other end of `torch_peers` and `llama_peer`: starts such a process, asks it, and waits for its answers."""

import contextlib
import dataclasses
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import knnprompt_jax
from knnprompt_jax import errors

SETTLE_SECONDS = 0.3  # Threads of a finished parallel region go on spinning for up to 0.2 s.
# The package comes last on the path: where it is installed lie libraries too, and another Python shall find its own first.
_RUN = "import runpy, sys; sys.path.append(sys.argv[1]); runpy.run_module(sys.argv[2], run_name='__main__')"


@dataclasses.dataclass(frozen=True)
class Library:
    """Its name in messages, the module that it is imported as, our module that runs it, and which peers that has."""

    title: str
    imported: str
    module: str
    peers: tuple[str, ...] = ()

    def installed(self) -> bool:
        """Whether this Python has it."""
        return importlib.util.find_spec(self.imported) is not None


TORCH = Library("PyTorch", "torch", "knnprompt_jax.benchmark.torch_peers", ("torch_one", "torch_cached"))
LLAMA = Library("llama.cpp", "llama_cpp", "knnprompt_jax.benchmark.llama_peer", ("llama_cached",))


class PeerProcess:
    """A process of another library that works only while it is waited for."""

    def __init__(self, process: subprocess.Popen, log: pathlib.Path, title: str):
        self._process, self._log, self._title = process, log, title

    def ask(self, do: str, **arguments: Any) -> float:
        """Has a method of the module's `Peers` run, with arrays as lists; returns the seconds it took.

        Raises UserError where it failed, or the process ended.
        """
        assert self._process.stdout  # A pipe.
        try:
            print(json.dumps({"do": do, **arguments}, default=np.ndarray.tolist), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        answer: dict[str, Any] = json.loads(line) if line else {"error": self._last_words()}
        if "error" in answer:
            raise errors.UserError(f"{self._title}, {do}: {answer['error']}; leave it out with --config.peers")
        time.sleep(SETTLE_SECONDS)
        return answer["seconds"]

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return f"its process ended with status {self._process.wait()} ({lines[-1] if lines else 'no message'})"


@contextlib.contextmanager
def start(library: Library, python: str = "") -> Iterator[PeerProcess]:
    """Starts the library's process in the Python of that path, or in this one; it ends with the context.

    Raises UserError where there is no such Python.
    """
    python, package = python or sys.executable, str(pathlib.Path(knnprompt_jax.__file__).parents[1])
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log"
        with log.open("w") as stderr:
            command = [python, "-c", _RUN, package, library.module]
            try:
                process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
                )
            except OSError as error:
                raise errors.UserError(f"{library.title}: cannot run {python!r}: {error.strerror}") from None
        with process:
            try:
                yield PeerProcess(process, log, library.title)
            finally:
                process.kill()
