"""The other end of `torch_peers`: starts it, asks it, and waits for its answers."""

import contextlib
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import knnprompt_jax
from knnprompt_jax import errors
from knnprompt_jax.benchmark import timing

SETTLE_SECONDS = 0.3  # Threads of a finished parallel region go on spinning for up to 0.2 s.


def installed() -> bool:
    return importlib.util.find_spec("torch") is not None


class TorchProcess:
    """A process of PyTorch that works only while it is waited for."""

    def __init__(self, process: subprocess.Popen, log: pathlib.Path):
        self._process, self._log = process, log

    def ask(self, do: str, **arguments: Any) -> float:
        """Has a method of `torch_peers.Peers` run; returns the seconds it took.

        Raises:
            UserError: it failed, or the process ended.
        """
        assert self._process.stdout  # A pipe.
        try:
            print(json.dumps({"do": do, **arguments}), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        answer: dict[str, Any] = json.loads(line) if line else {"error": self._last_words()}
        if "error" in answer:
            raise errors.UserError(f"PyTorch, {do}: {answer['error']}; leave it out with --config.peers")
        time.sleep(SETTLE_SECONDS)
        return answer["seconds"]

    def turn(self, do: str) -> timing.Turn:
        return lambda: self.ask(do)

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return f"its process ended with status {self._process.wait()} ({lines[-1] if lines else 'no message'})"


@contextlib.contextmanager
def start() -> Iterator[TorchProcess]:
    """Starts the process; it ends with the context."""
    package = str(pathlib.Path(knnprompt_jax.__file__).parents[1])
    path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log"
        with log.open("w") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "knnprompt_jax.benchmark.torch_peers"],
                env=os.environ | {"PYTHONPATH": path},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        with process:
            try:
                yield TorchProcess(process, log)
            finally:
                process.kill()
