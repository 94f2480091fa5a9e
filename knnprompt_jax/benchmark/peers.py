"""What other ways to the same distributions read, to be timed beside ours.

- jax_one: the published procedure with our model: one full prompt at a time, logits of all its tokens.
- jax_batched: full prompts in batches, no shared prefix, the head at each prompt's last token.
- torch_one: the published procedure with `transformers`, as the released code has it.
- torch_cached: `transformers` with a cached prefix (read before the clock starts: of a sample its share would be next to
  nothing; ours reads its prefix in every turn), and suffixes sorted by length into padded batches.
- llama_cached: llama.cpp on the same GGUF file, with its own kernels for quantised weights; the prefix's keys and values are
  shared, likewise read before the clock starts, and suffixes sorted by length go in batches without padding.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from knnprompt_jax.benchmark import settings as settings_lib
from knnprompt_jax.benchmark import workloads


@dataclasses.dataclass(frozen=True)
class Sample:
    """Whole prompts, and batches of suffixes out of all batches of the sorted workload; both have its mix of lengths."""

    prompts: list[np.ndarray]
    prefix_P: np.ndarray
    batches: list[list[np.ndarray]]

    def num_prompts(self, peer: str) -> int:
        """How many prompts a peer reads per turn."""
        return sum(map(len, self.batches)) if peer.endswith("_cached") else len(self.prompts)


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
