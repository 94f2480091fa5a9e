"""llama.cpp on a GGUF file, which `benchmark_peers.py` times.

The file's tokenizer is not used: the arguments are tokens.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import llama_cpp
import numpy as np

_MICRO_BATCH = 512  # Tokens that llama.cpp computes together: it splits a batch into such pieces.
_PREFIX = 0  # The sequence that holds the prefix; suffix i of a batch is sequence i + 1.


class Peers:
    """Suffixes that share the prefix's keys and values in the cache; a batch is one call of `llama_decode`."""

    def load(self, path: str, prefix: list[int], batches: list[list[list[int]]], threads: int, **_: Any) -> None:
        """Load the model of a GGUF file and batches of suffixes of a prefix, and read the prefix.

        Raises:
            RuntimeError: the file cannot be read, or the context does not fit in memory.
        """
        self._prefix_tokens = len(prefix)
        self._batches = batches
        num_tokens = max(sum(map(len, suffixes)) for suffixes in batches)
        num_suffixes = max(map(len, batches))
        model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        if not model:
            raise RuntimeError(f"{path}: llama.cpp cannot load it")
        self._vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        kind = llama_cpp.llama_context_default_params()
        kind.n_ctx = len(prefix) + num_tokens
        kind.n_batch = max(len(prefix), num_tokens)
        kind.n_ubatch = min(_MICRO_BATCH, kind.n_batch)
        kind.n_seq_max = kind.n_outputs_max = 1 + num_suffixes
        kind.n_threads = kind.n_threads_batch = threads
        kind.flash_attn_type = 1  # Else scores of all pairs are in memory.
        kind.kv_unified = True  # Else each sequence would have a copy of the prefix.
        self._context = llama_cpp.llama_init_from_model(model, kind)
        if not self._context:
            raise RuntimeError(f"{path}: llama.cpp has no room for {kind.n_ctx} tokens of keys and values")
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._input = llama_cpp.llama_batch_init(kind.n_batch, 0, 1)
        if prefix:
            self._decode([prefix], first_sequence=_PREFIX, first_position=0, with_logits=False)
            for sequence in range(1, num_suffixes + 1):
                llama_cpp.llama_memory_seq_cp(self._memory, _PREFIX, sequence, -1, -1)

    def llama_cached(self) -> list[np.ndarray]:
        """Return the log-probabilities [B, V] after the suffixes of each batch, in float32."""
        return [self._log_probabilities(suffixes) for suffixes in self._batches]

    def _log_probabilities(self, suffixes: Sequence[list[int]]) -> np.ndarray:
        """Return the log-probabilities [B, V] after the suffixes of a batch."""
        ends = self._decode(suffixes, first_sequence=1, first_position=self._prefix_tokens, with_logits=True)
        logits_BV = np.stack([self._logits(end) for end in ends])
        for sequence in range(1, len(suffixes) + 1):
            llama_cpp.llama_memory_seq_rm(self._memory, sequence, self._prefix_tokens, -1)
        logits_BV -= logits_BV.max(-1, keepdims=True)
        return logits_BV - np.log(np.exp(logits_BV).sum(-1, keepdims=True))

    def _decode(
        self, texts: Sequence[list[int]], first_sequence: int, first_position: int, with_logits: bool
    ) -> list[int]:
        """Compute one text per sequence and return the index in the batch of each text's last token.

        That token has logits if `with_logits`.
        """
        batch = self._input
        index = 0
        ends = []
        for sequence, tokens in enumerate(texts, first_sequence):
            for position, token in enumerate(tokens, first_position):
                batch.token[index] = token
                batch.pos[index] = position
                batch.logits[index] = 0
                batch.n_seq_id[index] = 1
                batch.seq_id[index][0] = sequence
                index += 1
            ends.append(index - 1)
            batch.logits[index - 1] = with_logits
        batch.n_tokens = index
        if status := llama_cpp.llama_decode(self._context, batch):
            raise RuntimeError(f"llama_decode of {index} tokens: status {status}")
        return ends

    def _logits(self, index: int) -> np.ndarray:
        """Return the logits [V] of a token of the last batch by its index, as a view."""
        pointer = llama_cpp.llama_get_logits_ith(self._context, index)
        return np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float)), (self._vocab_size,))
