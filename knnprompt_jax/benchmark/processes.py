"""Run `torch_peers` and `llama_peers` in processes of their own: two libraries in one process take each other's cores."""

import contextlib
import multiprocessing
import os
import pathlib
import tempfile
import time
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import jax.numpy as jnp

from knnprompt_jax import errors
from knnprompt_jax.benchmark import answering, peers
from knnprompt_jax.models import checkpoints, decoder
from knnprompt_jax.planning import workload
from knnprompt_jax.settings import planning as settings_lib

SETTLE_SECONDS = 0.3  # Threads of a finished parallel region spin for up to 0.2 s.


class PeerProcess:
    """A process of another library that works only while it is waited for; it starts with the first call."""

    def __init__(self, title: str, module: str):
        self.title, self.module = title, module
        context = multiprocessing.get_context("spawn")
        self.pool = futures.ProcessPoolExecutor(1, context, initializer=answering.silence)

    def ask(self, method: str, **arguments: Any) -> tuple[float, Any]:
        """Call a method of the module's `Peers`, as `answering.call` does.

        Raises:
            UserError: the method failed, or the process ended.
        """
        try:
            answer = self.pool.submit(answering.call, self.module, method, **arguments).result()
        except Exception as error:  # Whatever the library raises.
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            raise errors.UserError(f"{self.title}, {method}: {reason}; leave it out with --peers") from error
        time.sleep(SETTLE_SECONDS)
        return answer

    def turn(self, method: str) -> float:
        """Call a method and return the seconds it took."""
        return self.ask(method)[0]


@contextlib.contextmanager
def start_all(
    model: decoder.Decoder, subject: workload.Subject, sampled: peers.Sample, settings: settings_lib.BenchmarkSettings
) -> Iterator[tuple[dict[str, PeerProcess], dict[str, str]]]:
    """Start the peers that the settings name. Yield their processes by name, and the reasons why others cannot run."""
    running: dict[str, PeerProcess] = {}
    absent: dict[str, str] = {}
    given = {
        "dtype": settings.dtype,
        "prompts": [prompt.tolist() for prompt in sampled.prompts],
        "prefix": sampled.prefix_P.tolist(),
        "batches": [[suffix.tolist() for suffix in batch] for batch in sampled.batches],
        "threads": len(os.sched_getaffinity(0)),
    }
    with contextlib.ExitStack() as stack:
        for library, title in (("torch", "PyTorch"), ("llama", "llama.cpp")):
            if not (names := [name for name in settings.peers if name.startswith(library)]):
                continue
            process = PeerProcess(title, f"knnprompt_jax.benchmark.{library}_peers")
            stack.enter_context(process.pool)
            path = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            try:
                if library == "torch":
                    export(path, model, subject)
                elif subject.path and subject.path.suffix == ".gguf":
                    path = subject.path
                else:
                    raise errors.UserError("llama.cpp reads GGUF files and --model names none")
                process.ask("load", path=str(path), **given)
                running |= dict.fromkeys(names, process)
            except errors.UserError as error:
                absent |= dict.fromkeys(names, str(error))
        yield running, absent


def export(folder: pathlib.Path, model: decoder.Decoder, subject: workload.Subject) -> None:
    """Write the model as a folder that `transformers` loads; raise UserError if it does not support the model."""
    if subject.hf.get("rope_factors"):
        raise errors.UserError("transformers does not support the rope_freqs.weight of this file")
    # The padding token of some families would be beyond a smaller vocabulary.
    checkpoints.save(folder, model, {**subject.hf, "pad_token_id": None}, jnp.float32)
