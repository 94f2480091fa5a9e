"""The tensors of a GGUF file, quantised or not, under the names and in the layouts of Hugging Face.

llama.cpp's converter (its folder `conversion`) rearranges some tensors; that is undone here.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterable, Iterator

import gguf
import ml_dtypes
import numpy as np

from knnprompt_jax import errors
from knnprompt_jax.models import tensor_files
from knnprompt_jax.models.gguf import header as gguf_header

# Factors of rotary frequencies, which are part of the config.
_ROPE_TENSORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
_STORED = {
    gguf.GGMLQuantizationType.F32: np.dtype(np.float32),
    gguf.GGMLQuantizationType.F16: np.dtype(np.float16),
    gguf.GGMLQuantizationType.BF16: np.dtype(ml_dtypes.bfloat16),
    gguf.GGMLQuantizationType.F64: np.dtype(np.float64),
}
_CONV1D = ("attn_qkv.weight", "attn_output.weight", "ffn_up.weight", "ffn_down.weight")


@dataclasses.dataclass(frozen=True)
class _Layout:
    """The way to restore Hugging Face's array: `restore` rearranges it or, if it `calculates`, makes float32 numbers."""

    restore: Callable[[np.ndarray], np.ndarray]
    transposes: bool = False
    calculates: bool = False


def read_tensors(file: pathlib.Path, hf_names: Iterable[str]) -> Iterator[tensor_files.Tensor]:
    """Return all tensors of the file; only its head is read.

    A view of quantised numbers is float32 and dequantises its whole tensor. Only the last such array is kept, until `release`.

    Args:
        hf_names: full names that the model expects; other tensors keep their name in the file.

    Raises:
        UserError: as `gguf_header.read`, or an unsupported architecture, quantisation or number of heads.
    """
    fields = gguf_header.model_fields(gguf_header.read(file))
    names = _translate(fields, hf_names)
    for entry in fields.header.tensors.values():
        if entry.name not in _ROPE_TENSORS:
            yield _tensor(fields, entry, names.get(entry.name, entry.name))


def release() -> None:
    """Free the array that was dequantised last."""
    _compute.cache_clear()


def dtype(header: gguf_header.Header, entry: gguf_header.Entry) -> np.dtype:
    """Return the dtype of a tensor's numbers: the stored one, or float32 if they are quantised.

    Raises:
        UserError: a type that cannot be dequantised.
    """
    if entry.type not in _STORED and entry.type not in _quantised():
        choices = ", ".join(kind.name for kind in (*_STORED, *_quantised()))
        wrong = f"tensor {entry.name} has type {entry.type.name}, which is not supported; choices: {choices}"
        raise errors.UserError(f"{header.file}: {wrong}")
    return _STORED.get(entry.type, np.dtype(np.float32))


def numbers(header: gguf_header.Header, entry: gguf_header.Entry) -> np.ndarray:
    """Return a tensor's numbers: mapped if they are stored as such, otherwise dequantised to float32."""
    bytes_n = np.memmap(header.file, np.uint8, "r", entry.offset, (entry.num_bytes,))
    if entry.type in _STORED:
        return bytes_n.view(dtype(header, entry)).reshape(entry.shape)
    rows = bytes_n.reshape(gguf.quant_shape_to_byte_shape(entry.shape, entry.type))
    with np.errstate(all="ignore"):  # Damaged scales; the reader of the numbers checks that they are finite.
        return gguf.quants.dequantize(rows, entry.type)


def _translate(fields: gguf_header.Fields, hf_names: Iterable[str]) -> dict[str, str]:
    """Return the expected name for each name in the file."""
    arch = next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == fields.arch)
    table = gguf.get_tensor_name_map(arch, gguf_header.num_layers(fields))
    names: dict[str, str] = {}
    for hf_name in hf_names:
        suffix = next((suffix for suffix in (".weight", ".bias") if hf_name.endswith(suffix)), "")
        name = table.get_name(hf_name.removesuffix(suffix))
        if name is not None and names.setdefault(name + suffix, hf_name) != hf_name:
            raise ValueError(f"{hf_name} and {names[name + suffix]} would both be {name + suffix}")
    return names


def _tensor(fields: gguf_header.Fields, entry: gguf_header.Entry, key: str) -> tensor_files.Tensor:
    layout, stored_dtype = _layout(fields, entry), dtype(fields.header, entry)
    shape = entry.shape[::-1] if layout and layout.transposes else entry.shape
    if layout is None and entry.type in _STORED:
        view = functools.partial(numbers, fields.header, entry)
    else:
        view = functools.partial(_compute, fields.header, entry, layout)
    result_dtype = np.dtype(np.float32) if layout and layout.calculates else stored_dtype
    return tensor_files.Tensor(fields.header.file, key, shape, result_dtype, view)


@functools.lru_cache(maxsize=1)
def _compute(header: gguf_header.Header, entry: gguf_header.Entry, layout: _Layout | None) -> np.ndarray:
    """Return a tensor's numbers in Hugging Face's layout. The last is kept, since the shards of an array are read in turn."""
    array = numbers(header, entry)
    array = layout.restore(array) if layout else array
    array.flags.writeable = False
    return array


def _layout(fields: gguf_header.Fields, entry: gguf_header.Entry) -> _Layout | None:
    """Return how to restore a tensor; None if llama.cpp keeps it as it is. Raises UserError if the heads do not divide it."""
    part = entry.name.split(".", 2)[-1]
    if fields.arch in ("llama", "smollm3") and part.startswith(("attn_q.", "attn_k.")):
        heads = fields.size("attention.head_count")
        if part.startswith("attn_k."):
            heads = fields.size("attention.head_count_kv", heads)
        return _Layout(functools.partial(_separate_pairs, heads=_dividing(fields, entry, heads, 2)))
    if fields.arch == "gptneox" and part.startswith("attn_qkv."):
        heads = fields.size("attention.head_count")
        return _Layout(functools.partial(_fuse_by_head, heads=_dividing(fields, entry, heads, 3)))
    if fields.arch in ("gemma2", "gemma3") and entry.name.endswith("norm.weight"):
        return _Layout(_subtract_one, calculates=True)
    if fields.arch == "gpt2" and part in _CONV1D:
        return _Layout(np.transpose, transposes=True)
    return None


def _dividing(fields: gguf_header.Fields, entry: gguf_header.Entry, heads: int, parts: int) -> int:
    if entry.shape[0] % (parts * heads):
        shape = list(entry.shape)
        raise fields.wrong("attention.head_count", f"{heads} heads do not divide {entry.name} of shape {shape}")
    return heads


def _separate_pairs(array: np.ndarray, heads: int) -> np.ndarray:
    """Change the order within each head from x0 y0 x1 y1 … to x0 x1 … y0 y1 …"""
    return array.reshape(heads, -1, 2, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def _fuse_by_head(array: np.ndarray, heads: int) -> np.ndarray:
    """Change the order from all queries, all keys, all values to query, key and value of each head."""
    return array.reshape(3, heads, -1, *array.shape[1:]).swapaxes(0, 1).reshape(array.shape)


def _subtract_one(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) - np.float32(1)


@functools.cache
def _quantised() -> tuple[gguf.GGMLQuantizationType, ...]:
    """Return the types that the `gguf` package can dequantise, found by trying one block of each."""
    kinds = []
    for kind in gguf.GGMLQuantizationType:
        try:
            gguf.quants.dequantize(np.zeros((1, gguf.GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
        except NotImplementedError:
            continue
        kinds.append(kind)
    return tuple(kind for kind in kinds if kind not in _STORED)
