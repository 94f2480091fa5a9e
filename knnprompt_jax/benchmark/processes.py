"""Start `torch_peers` and `llama_peer` in processes of their own and ask them for turns.

Two libraries in one process take each other's cores, and llama.cpp may be installed in another Python.
"""

import contextlib
import dataclasses
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

import jax.numpy as jnp
import numpy as np

import knnprompt_jax
from knnprompt_jax import errors
from knnprompt_jax.benchmark import peers
from knnprompt_jax.benchmark import settings as settings_lib
from knnprompt_jax.models import checkpoints, decoder
from knnprompt_jax.planning import workload

SETTLE_SECONDS = 0.3  # Threads of a finished parallel region spin for up to 0.2 s.
# The package comes last on the path: another Python must find its own libraries first.
_RUN = "import runpy, sys; sys.path.append(sys.argv[1]); runpy.run_module(sys.argv[2], run_name='__main__')"
_VERSION = "import importlib.metadata as metadata; print(metadata.version('llama-cpp-python'))"


@dataclasses.dataclass(frozen=True)
class Library:
    """Another library: its title in messages, its import name, our module that runs it, and the peers of that module."""

    title: str
    import_name: str
    module: str
    peers: tuple[str, ...] = ()

    def is_installed(self) -> bool:
        """Return whether this Python has the library."""
        return importlib.util.find_spec(self.import_name) is not None


TORCH = Library("PyTorch", "torch", "knnprompt_jax.benchmark.torch_peers", ("torch_one", "torch_cached"))
LLAMA = Library("llama.cpp", "llama_cpp", "knnprompt_jax.benchmark.llama_peer", ("llama_cached",))


class PeerProcess:
    """A process of another library that works only while it is waited for."""

    def __init__(self, process: subprocess.Popen, log: pathlib.Path, title: str):
        self._process, self._log, self._title = process, log, title

    def ask(self, do: str, **arguments: Any) -> float:
        """Call a method of the module's `Peers` and return the seconds it took.

        Raises:
            UserError: the method failed, or the process ended.
        """
        assert self._process.stdout  # A pipe.
        try:
            print(json.dumps({"do": do, **arguments}, default=np.ndarray.tolist), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if line:
            answer = json.loads(line)
        else:
            log = self._log.read_text(errors="replace").splitlines() or ["no message"]
            answer = {"error": f"its process ended with status {self._process.wait()} ({log[-1]})"}
        if "error" in answer:
            raise errors.UserError(f"{self._title}, {do}: {answer['error']}; leave it out with --peers")
        time.sleep(SETTLE_SECONDS)
        return answer["seconds"]


@contextlib.contextmanager
def start(library: Library, python: str = "") -> Iterator[PeerProcess]:
    """Start the library's process in the Python at that path, or in this one, until the context ends.

    Raises:
        UserError: there is no such Python.
    """
    package = str(pathlib.Path(knnprompt_jax.__file__).parents[1])
    command = [python or sys.executable, "-c", _RUN, package, library.module]
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log"
        with log.open("w") as stderr:
            try:
                process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
                )
            except OSError as error:
                raise errors.UserError(f"{library.title}: cannot run {command[0]!r}: {error.strerror}") from None
        with process:
            try:
                yield PeerProcess(process, log, library.title)
            finally:
                process.kill()


@contextlib.contextmanager
def start_all(
    model: decoder.Decoder, subject: workload.Subject, sampled: peers.Sample, settings: settings_lib.BenchmarkSettings
) -> Iterator[tuple[dict[str, PeerProcess], dict[str, str]]]:
    """Start the peers that the settings name. Yield their processes by name, and the reasons why others cannot run.

    Raises:
        UserError: a process cannot start or cannot load the model.
    """
    running: dict[str, PeerProcess] = {}
    absent: dict[str, str] = {}
    no_torch = "" if TORCH.is_installed() else "PyTorch is not installed"
    if subject.hf.get("rope_factors"):
        no_torch = "transformers does not support the rope_freqs.weight of this file"
    no_llama = ""
    if not settings.llama_python and not LLAMA.is_installed():
        no_llama = "llama-cpp-python is not installed and --llama_python names no Python that has it"
    if not subject.path or subject.path.suffix != ".gguf":
        no_llama = "llama.cpp reads GGUF files and --model names none"
    with contextlib.ExitStack() as stack:
        for library, obstacle in ((TORCH, no_torch), (LLAMA, no_llama)):
            names = [name for name in library.peers if name in settings.peers]
            if obstacle or not names:
                absent |= dict.fromkeys(names, obstacle)
                continue
            given: dict[str, Any] = {"prefix": sampled.prefix_P, "batches": sampled.batches}
            if library is TORCH:
                process = stack.enter_context(start(TORCH))
                folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
                export(folder, model, subject)
                given |= {"folder": str(folder), "dtype": settings.dtype, "prompts": sampled.prompts}
            else:
                process = stack.enter_context(start(LLAMA, settings.llama_python))
                given |= {"file": str(subject.path), "threads": len(os.sched_getaffinity(0))}
            process.ask("load", **given)
            running |= dict.fromkeys(names, process)
        yield running, absent


def export(folder: pathlib.Path, model: decoder.Decoder, subject: workload.Subject) -> None:
    """Write the model as a folder that `transformers` loads."""
    # The padding token of some families would be beyond a smaller vocabulary.
    checkpoints.save(folder, model, {**subject.hf, "pad_token_id": None}, jnp.float32)


def llama_version(settings: settings_lib.BenchmarkSettings) -> str:
    """Return the version of llama-cpp-python."""
    python = settings.llama_python or sys.executable
    done = subprocess.run([python, "-c", _VERSION], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"
