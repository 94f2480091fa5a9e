"""The peers that run in separate processes: PyTorch with the same weights, llama.cpp with the same GGUF file."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp

from knnprompt_jax.benchmark import peer_process, peers, subjects
from knnprompt_jax.benchmark import settings as settings_lib
from knnprompt_jax.models import checkpoints, decoder

Processes = dict[str, peer_process.PeerProcess]
"""That of each peer, by its name."""
_VERSION = "import importlib.metadata as metadata; print(metadata.version('llama-cpp-python'))"


@contextlib.contextmanager
def start(
    model: decoder.Decoder, subject: subjects.Subject, sampled: peers.Sample, settings: settings_lib.BenchmarkSettings
) -> Iterator[tuple[Processes, dict[str, str]]]:
    """Starts the peers that the settings ask for, until the context ends; those that cannot run are given with the reason.

    Raises UserError where a process cannot start or take the model.
    """
    processes: Processes = {}
    absent: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        for library, python, obstacle in (
            (peer_process.TORCH, "", _no_torch(subject)),
            (peer_process.LLAMA, settings.llama_python, _no_llama(subject, settings)),
        ):
            names = [name for name in library.peers if name in settings.peers]
            if obstacle:
                absent |= dict.fromkeys(names, obstacle)
            elif names:
                process = stack.enter_context(peer_process.start(library, python))
                shared = {"prefix": sampled.prefix_P, "batches": sampled.batches}
                if library is peer_process.LLAMA:
                    process.ask("load", file=str(subject.file), threads=num_threads(settings), **shared)
                else:
                    _load_torch(process, model, subject, settings, prompts=sampled.prompts, **shared)
                processes |= dict.fromkeys(names, process)
        yield processes, absent


def num_threads(settings: settings_lib.BenchmarkSettings) -> int:
    """How many threads llama.cpp has: by default one per core that this process may use."""
    return settings.llama_threads or len(os.sched_getaffinity(0))


def export(folder: pathlib.Path, model: decoder.Decoder, subject: subjects.Subject, with_weights: bool) -> None:
    """Writes what `transformers` needs to have the same model: config.json and, if asked for, the weights."""
    hf = {**subject.hf, "pad_token_id": None}  # That of some families would be beyond a replaced vocabulary.
    if with_weights:
        checkpoints.save(folder, model, hf, jnp.float32)
    else:
        (folder / "config.json").write_text(json.dumps(hf), encoding="utf-8")


def _load_torch(
    process: peer_process.PeerProcess,
    model: decoder.Decoder,
    subject: subjects.Subject,
    settings: settings_lib.BenchmarkSettings,
    **texts: Any,
) -> None:
    with_weights = settings.agreement > 0 or subject.file is not None
    with tempfile.TemporaryDirectory() as folder:
        export(pathlib.Path(folder), model, subject, with_weights)
        process.ask("load", folder=folder, dtype=settings.dtype, with_weights=with_weights, **texts)


def _no_torch(subject: subjects.Subject) -> str:
    if not peer_process.TORCH.installed():
        return "PyTorch is not installed"
    if subject.hf.get("rope_factors"):
        return "transformers cannot divide rotary frequencies as this file's rope_freqs.weight asks"
    return ""


def _no_llama(subject: subjects.Subject, settings: settings_lib.BenchmarkSettings) -> str:
    if subject.file is None:
        return "llama.cpp reads GGUF files and option gguf names none"
    if not settings.llama_python and not peer_process.LLAMA.installed():
        return "llama-cpp-python is not installed and option llama_python names no Python that has it"
    return ""


def llama_version(settings: settings_lib.BenchmarkSettings) -> str:
    """That of llama-cpp-python."""
    python = settings.llama_python or sys.executable
    done = subprocess.run([python, "-c", _VERSION], capture_output=True, text=True)
    return done.stdout.strip() or "of unknown version"
