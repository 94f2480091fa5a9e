"""From llama.cpp's layout of a tensor back to Hugging Face's.

What is undone here is what llama.cpp's converter does (its folder `conversion`, formerly convert_hf_to_gguf.py).
"""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from knnprompt_jax.models.gguf import fields as gguf_fields
from knnprompt_jax.models.gguf import header as gguf_header

# Files of these have queries and keys whose rotary pairs are neighbours; the other architectures keep them in halves.
_NEIGHBOURS = ("llama", "smollm3")
_NORMS_PLUS_ONE = ("gemma2", "gemma3")
_CONV1D = ("attn_qkv.weight", "attn_output.weight", "ffn_up.weight", "ffn_down.weight")


@dataclasses.dataclass(frozen=True)
class TensorLayout:
    """`restore` makes Hugging Face's array; where it calculates with the numbers, in float32."""

    restore: Callable[[np.ndarray], np.ndarray]
    transposes: bool = False
    calculates: bool = False


def of(fields: gguf_fields.Fields, entry: gguf_header.Entry) -> TensorLayout | None:
    """How to restore a tensor; None if llama.cpp keeps it as it is. Raises UserError where the heads do not divide it."""
    part = entry.name.split(".", 2)[-1]
    if fields.arch in _NEIGHBOURS and part.startswith(("attn_q.", "attn_k.")):
        heads = fields.size("attention.head_count")
        if part.startswith("attn_k."):
            heads = fields.size("attention.head_count_kv", heads)
        return TensorLayout(functools.partial(_part_pairs, heads=_dividing(fields, entry, heads, 2)))
    if fields.arch == "gptneox" and part.startswith("attn_qkv."):
        heads = fields.size("attention.head_count")
        return TensorLayout(functools.partial(_fuse_by_head, heads=_dividing(fields, entry, heads, 3)))
    if fields.arch in _NORMS_PLUS_ONE and entry.name.endswith("norm.weight"):
        return TensorLayout(_subtract_one, calculates=True)
    if fields.arch == "gpt2" and part in _CONV1D:
        return TensorLayout(np.transpose, transposes=True)
    return None


def _dividing(fields: gguf_fields.Fields, entry: gguf_header.Entry, heads: int, parts: int) -> int:
    if entry.shape[0] % (parts * heads):
        shape = list(entry.shape)
        raise fields.wrong("attention.head_count", f"{heads} heads do not divide {entry.name} of shape {shape}")
    return heads


def _part_pairs(array: np.ndarray, heads: int) -> np.ndarray:
    """Per head from x0 y0 x1 y1 … to x0 x1 … y0 y1 …"""
    return array.reshape(heads, -1, 2, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def _fuse_by_head(array: np.ndarray, heads: int) -> np.ndarray:
    """From all queries, all keys, all values to query, key and value of each head."""
    return array.reshape(3, heads, -1, *array.shape[1:]).swapaxes(0, 1).reshape(array.shape)


def _subtract_one(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) - np.float32(1)
