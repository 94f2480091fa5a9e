"""Other procedures that compute the same distributions, to be timed beside ours.

- jax_one: the published procedure with our model: one full prompt at a time, logits of all its tokens.
- jax_batched: full prompts in batches, no shared prefix, the head at each prompt's last token.
- torch_one: the published procedure with `transformers`, like the released code.
- torch_cached: `transformers` with a cached prefix, and suffixes sorted by length in padded batches. The prefix is read before the clock
  starts, because its share of a sample would be too large. Ours reads its prefix in every turn.
- llama_cached: llama.cpp on the same GGUF file, with its own kernels for quantised weights. The prefix's keys and values are shared and
  are also read before the clock starts. Suffixes sorted by length go in batches without padding.

Peers of other libraries run in processes of their own: two libraries in one process take each other's cores.
"""

import contextlib
import dataclasses
import functools
import multiprocessing
import os
import pathlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent import futures
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from knnprompt_jax import errors
from knnprompt_jax.benchmark import answering, timing
from knnprompt_jax.models import decoder
from knnprompt_jax.models.weights import checkpoints
from knnprompt_jax.planning import workload
from knnprompt_jax.prompts import layout, packing
from knnprompt_jax.settings import planning as settings_lib

Array = jax.Array
_PAD_TO = 64  # Prompts are padded to a multiple of this many tokens, because each length is another compilation.
SETTLE_SECONDS = 0.3  # Threads of a finished parallel region spin for up to 0.2 s.


@dataclasses.dataclass(frozen=True)
class Sample:
    """Whole prompts, and batches of suffixes of the sorted workload; both have its mix of lengths."""

    prompts: list[np.ndarray]
    prefix_P: np.ndarray
    batches: list[list[np.ndarray]]

    def num_prompts(self, peer: str) -> int:
        """Return the number of prompts that a peer reads per turn."""
        return sum(map(len, self.batches)) if peer.endswith("_cached") else len(self.prompts)


def sample(group: layout.PromptGroup, settings: settings_lib.BenchmarkSettings) -> Sample:
    """Return prompts of the group that are evenly spaced by length."""
    by_length = sorted(group.suffixes, key=len)
    whole = [np.concatenate([group.prefix_P, suffix]) for suffix in _spaced(by_length, settings.peer_prompts)]
    size = settings.peer_batch
    batches = [by_length[start : start + size] for start in range(0, len(by_length), size)]
    return Sample(whole, group.prefix_P, _spaced(batches, max(1, settings.peer_suffixes // size)))


def jax_turns(
    model: decoder.Decoder, sampled: Sample, settings: settings_lib.BenchmarkSettings
) -> dict[str, timing.Turn]:
    """Return the turns of the peers in JAX that the settings name."""
    read = functools.partial(read_without_prefix, model, sampled.prompts)
    work = {
        "jax_one": functools.partial(read, 1, every_token=True),
        "jax_batched": functools.partial(read, settings.peer_batch, every_token=False),
    }
    return {name: timing.stopwatch(work[name]) for name in work if name in settings.peers}


def read_without_prefix(
    model: decoder.Decoder, prompts: Sequence[np.ndarray], size: int, every_token: bool
) -> list[Array]:
    """Return the log-probabilities [B, V] after the prompts of each batch of `size`.

    With `every_token` the logits of all tokens are computed, as in the released code.
    """
    batches = []
    for start in range(0, len(prompts), size):
        tokens = [prompt.tolist() for prompt in prompts[start : start + size]]
        width = packing.round_up(max(map(len, tokens)), _PAD_TO)
        tokens_BT, lengths_B = packing.pad(tokens, len(tokens), width)
        batches.append(jax.block_until_ready(_log_probabilities(model, tokens_BT, lengths_B - 1, every_token)))
    return batches


@functools.partial(jax.jit, static_argnames="every_token")
def _log_probabilities(model: decoder.Decoder, tokens_BT: Array, last_B: Array, every_token: bool) -> Array:
    rows = np.arange(len(tokens_BT))
    with jax.default_matmul_precision("highest"):
        hidden_BTE = model(tokens_BT)
        if every_token:
            logits_BTV = jax.lax.optimization_barrier(model.head.logits(hidden_BTE))  # All of them are computed.
            return jax.nn.log_softmax(logits_BTV[rows, last_B])
        return jax.nn.log_softmax(model.head.logits(hidden_BTE[rows, last_B]))


def _spaced(items: Sequence, count: int) -> list:
    count = min(count, len(items))
    return [items[int((i + 0.5) * len(items) / count)] for i in range(count)]


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
    model: decoder.Decoder, subject: workload.Subject, sampled: Sample, settings: settings_lib.BenchmarkSettings
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
