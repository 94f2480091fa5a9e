"""Procedures in PyTorch that `benchmark_peers.py` times.

- torch_one: the published procedure with `transformers`: one full prompt at a time.
- torch_cached: a cached prefix, and suffixes sorted by length in padded batches.
"""

import copy
from typing import Any

import numpy as np
import torch
import transformers

Numbers = list[list[int]]


class Peers:
    """The published procedure and a batched one with a cached prefix, on a model of `transformers`."""

    @torch.inference_mode()
    def load(
        self, path: str, dtype: str, prompts: Numbers, prefix: list[int], batches: list[Numbers], **_: Any
    ) -> None:
        """Load the model of a folder, whole prompts, and batches of suffixes of a prefix, which is read here."""
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._prompts = [torch.tensor([tokens], device=self.device) for tokens in prompts]
        self._batches = batches
        model = transformers.AutoModelForCausalLM.from_pretrained(
            path, local_files_only=True, dtype=getattr(torch, dtype)
        )
        self._model = model.eval().to(self.device)
        tokens_1P = torch.tensor([prefix], device=self.device)
        self._prefix = self._model.base_model(tokens_1P, use_cache=True).past_key_values if prefix else None

    @torch.inference_mode()
    def torch_one(self) -> list[np.ndarray]:
        """Return the log-probabilities after each full prompt.

        Logits of all tokens are computed, as in the released code.
        """
        return [self._model(tokens).logits.cpu()[:, -1].float().log_softmax(-1).numpy() for tokens in self._prompts]

    @torch.inference_mode()
    def torch_cached(self) -> list[np.ndarray]:
        """Return the log-probabilities after each suffix, computed in right-padded batches.

        The head runs once per suffix.
        """
        return [self._run(suffixes) for suffixes in self._batches]

    def _run(self, suffixes: Numbers) -> np.ndarray:
        width = max(map(len, suffixes))
        rows = torch.arange(len(suffixes), device=self.device)
        tokens_BS = torch.tensor([suffix + [0] * (width - len(suffix)) for suffix in suffixes], device=self.device)
        ends_B = torch.tensor([len(suffix) - 1 for suffix in suffixes], device=self.device)
        past = None if self._prefix is None else _expanded(self._prefix, len(suffixes))
        hidden_BSE = self._model.base_model(tokens_BS, past_key_values=past, use_cache=past is not None)[0]
        logits_BV = self._model.get_output_embeddings()(hidden_BSE[rows, ends_B]).float()
        return logits_BV.log_softmax(-1).cpu().numpy()


def _expanded(prefix: transformers.DynamicCache, batch: int) -> transformers.DynamicCache:
    """Return the cache with a batch axis, as views: the forward pass copies them once, when it appends to them.

    A layer with a window keeps only the window's keys and values. Its count of tokens is copied with the layer.
    """
    cache = copy.copy(prefix)
    layers: list[Any] = [copy.copy(layer) for layer in prefix.layers]
    cache.layers = layers
    for layer in layers:
        layer.keys = layer.keys.expand(batch, -1, -1, -1)
        layer.values = layer.values.expand(batch, -1, -1, -1)
    return cache
