"""Other ways to the same distributions, to be timed beside ours.

- jax_one: the published procedure with our model: one full prompt at a time, logits of all its tokens.
- jax_batched: full prompts in batches, no shared prefix, the head at each prompt's last token.
- torch_one: the published procedure with `transformers`, as the released code has it.
- torch_cached: `transformers` with a cached prefix (read before the clock starts; ours reads its prefix in every turn), and
  suffixes sorted by length into padded batches.
- llama_cached: llama.cpp on the same GGUF file, with its own kernels for quantised weights; the prefix's keys and values are
  shared, likewise read before the clock starts, and suffixes sorted by length go in batches without padding.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from knnprompt_jax.benchmark import settings as settings_lib
from knnprompt_jax.benchmark import timing, workloads

TITLES = {
    "jax_one": "JAX, one full prompt at a time",
    "jax_batched": "JAX, full prompts in batches",
    "torch_one": "transformers, one full prompt at a time (released code)",
    "torch_cached": "transformers, cached prefix, sorted padded batches",
    "llama_cached": "llama.cpp, cached prefix, sorted batches, weights as stored",
}


@dataclasses.dataclass(frozen=True)
class Peer:
    """A contender: a turn reads `prompts` prompts, a sample of the workload's that has its mix of lengths."""

    prompts: int
    turn: timing.Turn


@dataclasses.dataclass(frozen=True)
class Sample:
    """What the peers read: whole prompts, and batches of suffixes out of all batches of the sorted workload."""

    prompts: list[np.ndarray]
    prefix_P: np.ndarray
    batches: list[list[np.ndarray]]

    @property
    def num_suffixes(self) -> int:
        return sum(map(len, self.batches))


def sample(workload: workloads.Workload, settings: settings_lib.BenchmarkSettings) -> Sample:
    """Evenly spaced by length."""
    group = workload.largest
    by_length = sorted(group.suffixes, key=len)
    whole = [np.concatenate([group.prefix_P, suffix]) for suffix in _spaced(by_length, settings.peer_prompts)]
    size = settings.peer_batch
    batches = [by_length[start : start + size] for start in range(0, len(by_length), size)]
    return Sample(whole, group.prefix_P, _spaced(batches, max(1, settings.peer_suffixes // size)))


def _spaced(items: Sequence, count: int) -> list:
    count = min(count, len(items))
    return [items[int((i + 0.5) * len(items) / count)] for i in range(count)]
