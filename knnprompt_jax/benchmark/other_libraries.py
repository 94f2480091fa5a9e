"""The peers that run in processes of their own: PyTorch with the same weights, llama.cpp with the same GGUF file."""

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import jax.numpy as jnp

from knnprompt_jax.benchmark import peer_process, peers, subjects
from knnprompt_jax.benchmark import settings as settings_lib
from knnprompt_jax.models import checkpoints, decoder

_VERSION = "import importlib.metadata as metadata; print(metadata.version('llama-cpp-python'))"


@dataclasses.dataclass(frozen=True)
class Running:
    """Peers that are ready for their turns with the process of each, and those that are absent with the reason.

    `llama_version` is that of llama-cpp-python, where it runs.
    """

    ready: dict[str, peers.Peer]
    processes: dict[str, peer_process.PeerProcess]
    absent: dict[str, str]
    llama_version: str


@contextlib.contextmanager
def start(
    model: decoder.Decoder, subject: subjects.Subject, sampled: peers.Sample, settings: settings_lib.BenchmarkSettings
) -> Iterator[Running]:
    """Starts those that the settings ask for and that there are; they end with the context.

    Raises UserError where a process cannot start or take the model.
    """
    with_torch = [name for name in settings_lib.TORCH_PEERS if name in settings.peers]
    with_llama = [name for name in settings_lib.LLAMA_PEERS if name in settings.peers]
    reasons = dict.fromkeys(with_torch, _no_torch(subject)) | dict.fromkeys(with_llama, _no_llama(subject, settings))
    absent = {name: reason for name, reason in reasons.items() if reason}
    version = ""
    with contextlib.ExitStack() as stack:
        processes: dict[str, peer_process.PeerProcess] = {}
        if ready := [name for name in with_torch if name not in absent]:
            torch = stack.enter_context(peer_process.start(peer_process.TORCH))
            _load_torch(torch, model, subject, sampled, settings)
            processes |= dict.fromkeys(ready, torch)
        if ready := [name for name in with_llama if name not in absent]:
            llama = stack.enter_context(peer_process.start(peer_process.LLAMA, settings.llama_python))
            file, threads = str(subject.file.resolve()), num_threads(settings)  # type: ignore[union-attr]  # Else it is absent.
            llama.ask("load", file=file, threads=threads, **_shared(sampled))
            processes |= dict.fromkeys(ready, llama)
            version = _llama_version(settings)
        counts = {name: sampled.num_suffixes for name in processes} | {"torch_one": len(sampled.prompts)}
        turns = {name: peers.Peer(counts[name], process.turn(name)) for name, process in processes.items()}
        yield Running(turns, processes, absent, version)


def num_threads(settings: settings_lib.BenchmarkSettings) -> int:
    """How many threads llama.cpp has: by default one per core that this process may use."""
    return settings.llama_threads or len(os.sched_getaffinity(0))


def export(folder: pathlib.Path, model: decoder.Decoder, subject: subjects.Subject, weights: bool) -> None:
    """Writes what `transformers` needs to have the same model: config.json and, if asked for, the weights."""
    hf = {**subject.hf, "pad_token_id": None}  # Some families' own would be beyond a replaced vocabulary.
    if weights:
        checkpoints.save(folder, model, hf, jnp.float32)
    else:
        (folder / "config.json").write_text(json.dumps(hf), encoding="utf-8")


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


def _load_torch(
    process: peer_process.PeerProcess,
    model: decoder.Decoder,
    subject: subjects.Subject,
    sampled: peers.Sample,
    settings: settings_lib.BenchmarkSettings,
) -> None:
    weights = settings.agreement > 0 or subject.file is not None
    with tempfile.TemporaryDirectory() as folder:
        export(pathlib.Path(folder), model, subject, weights)
        prompts = [tokens.tolist() for tokens in sampled.prompts]
        process.ask("load", folder=folder, dtype=settings.dtype, weights=weights, prompts=prompts, **_shared(sampled))


def _shared(sampled: peers.Sample) -> dict[str, list]:
    """The prefix and the batches of its suffixes, as JSON has them."""
    batches = [[suffix.tolist() for suffix in batch] for batch in sampled.batches]
    return {"prefix": sampled.prefix_P.tolist(), "batches": batches}


def _llama_version(settings: settings_lib.BenchmarkSettings) -> str:
    python = settings.llama_python or sys.executable
    done = subprocess.run([python, "-c", _VERSION], capture_output=True, text=True)
    return done.stdout.strip() or "of unknown version"
