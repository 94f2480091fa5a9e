"""Other libraries that compute the same distributions, and the sample of the workload that they are timed on."""

import contextlib
import dataclasses
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from knnprompt_jax import errors
from knnprompt_jax.benchmark import timing, workload
from knnprompt_jax.benchmark.peer_process import PeerProcess
from knnprompt_jax.models import decoder
from knnprompt_jax.models.weights import checkpoints
from knnprompt_jax.prompts import layout
from knnprompt_jax.settings import benchmark as settings_lib


@dataclasses.dataclass(frozen=True)
class Library:
    """Another library.

    Attributes:
        title: its name in messages.
        module: the module with its class `Peers`, which has `load` and a method for each procedure.
        procedures: the titles of its procedures by name. The name ends in "_cached" if the procedure caches the prefix.
        prepare: writes the model into a folder and returns the path to load; raises UserError if the library does not
            support the model.
    """

    title: str
    module: str
    procedures: Mapping[str, str]
    prepare: Callable[[pathlib.Path, decoder.Decoder, workload.ModelShape], pathlib.Path]


def export(folder: pathlib.Path, model: decoder.Decoder, subject: workload.ModelShape) -> pathlib.Path:
    """Write the model for `transformers` and return the folder; raise UserError if it does not support the model."""
    if subject.hf.get("rope_factors"):
        raise errors.UserError("transformers does not support the rope_freqs.weight of this file")
    # The padding token of some families would be beyond a smaller vocabulary.
    checkpoints.save(folder, model, {**subject.hf, "pad_token_id": None}, jnp.float32)
    return folder


TORCH = Library("PyTorch", "knnprompt_jax.benchmark.torch_peers", settings_lib.PEERS, export)


@dataclasses.dataclass(frozen=True)
class Sample:
    """Whole prompts, and batches of suffixes of the sorted workload; both have its mix of lengths."""

    prompts: list[np.ndarray]
    prefix_P: np.ndarray
    batches: list[list[np.ndarray]]

    def suffixes(self, procedure: str) -> list[np.ndarray]:
        """Return the suffixes of the prompts that a procedure reads per turn."""
        if procedure.endswith("_cached"):
            return [suffix for batch in self.batches for suffix in batch]
        return [tokens[len(self.prefix_P) :] for tokens in self.prompts]


def sample(group: layout.PromptGroup, settings: settings_lib.BenchmarkSettings) -> Sample:
    """Return prompts of the group that are evenly spaced by length."""
    by_length = sorted(group.suffixes, key=len)
    whole = [np.concatenate([group.prefix_P, suffix]) for suffix in _spaced(by_length, settings.peer_prompts)]
    size = settings.peer_batch
    batches = [by_length[start : start + size] for start in range(0, len(by_length), size)]
    return Sample(whole, group.prefix_P, _spaced(batches, max(1, settings.peer_suffixes // size)))


def _spaced(items: Sequence, count: int) -> list:
    count = min(count, len(items))
    return [items[int((i + 0.5) * len(items) / count)] for i in range(count)]


@contextlib.contextmanager
def start_all(
    libraries: Sequence[Library],
    model: decoder.Decoder,
    subject: workload.ModelShape,
    sampled: Sample,
    settings: settings_lib.BenchmarkSettings,
) -> Iterator[tuple[dict[str, PeerProcess], dict[str, str]]]:
    """Start the procedures that the settings name.

    Yield the processes by procedure name, and the reasons why other procedures cannot run.
    """
    running: dict[str, PeerProcess] = {}
    absent: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        for library in libraries:
            names = [name for name in library.procedures if name in settings.peers]
            if not names:
                continue
            process = PeerProcess(library.title, library.module)
            stack.enter_context(process.pool)
            folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            try:
                path = library.prepare(folder, model, subject)
                _load(process, path, sampled, settings.dtype)
            except errors.UserError as error:
                absent |= dict.fromkeys(names, str(error))
            else:
                running |= dict.fromkeys(names, process)
        yield running, absent


def _load(process: PeerProcess, path: pathlib.Path, sampled: Sample, dtype: str) -> None:
    """Load the model and the sample in the process; raise UserError if that fails."""
    process.call(
        "load",
        path=str(path),
        dtype=dtype,
        prompts=[prompt.tolist() for prompt in sampled.prompts],
        prefix=sampled.prefix_P.tolist(),
        batches=[[suffix.tolist() for suffix in batch] for batch in sampled.batches],
        threads=timing.num_cores(),
    )
