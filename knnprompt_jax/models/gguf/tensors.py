"""Tensors of a GGUF file, stored as numbers or quantised, under their Hugging Face names and in Hugging Face's layout."""

import functools
import pathlib
from collections.abc import Iterable, Iterator

import gguf
import ml_dtypes
import numpy as np

from knnprompt_jax import errors
from knnprompt_jax.models import tensor_files
from knnprompt_jax.models.gguf import fields as gguf_fields
from knnprompt_jax.models.gguf import header as gguf_header
from knnprompt_jax.models.gguf import layouts as gguf_layouts

# Tensors that say how rotary positions turn; `gguf_config` reads them.
OF_THE_CONFIG = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
_SUFFIXES = (".weight", ".bias")
_STORED = {
    gguf.GGMLQuantizationType.F32: np.dtype(np.float32),
    gguf.GGMLQuantizationType.F16: np.dtype(np.float16),
    gguf.GGMLQuantizationType.BF16: np.dtype(ml_dtypes.bfloat16),
    gguf.GGMLQuantizationType.F64: np.dtype(np.float64),
}


def read_tensors(file: pathlib.Path, hf_names: Iterable[str]) -> Iterator[tensor_files.Tensor]:
    """All tensors of the file, from its head alone.

    A view is in Hugging Face's layout. Quantised numbers are float32, and a view dequantises its whole tensor; only the last
    such array is kept, until `release`.

    Args:
        hf_names: whole names that the model expects; a tensor that none of them stands for keeps its name in the file.

    Raises:
        UserError: as `gguf_header.read`, or an architecture, a quantisation or a number of heads that cannot be used.
    """
    fields = gguf_fields.of_model(gguf_header.read(file))
    names = _names(fields, hf_names)
    for entry in fields.header.tensors.values():
        if entry.name not in OF_THE_CONFIG:
            yield _tensor(fields, entry, names.get(entry.name, entry.name))


def release() -> None:
    """Forgets the array that was dequantised last."""
    _compute.cache_clear()


def _names(fields: gguf_fields.Fields, hf_names: Iterable[str]) -> dict[str, str]:
    """From names in the file to those expected."""
    arch = next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == fields.arch)
    table = gguf.get_tensor_name_map(arch, gguf_fields.num_layers(fields))
    names: dict[str, str] = {}
    for hf_name in hf_names:
        suffix = next((suffix for suffix in _SUFFIXES if hf_name.endswith(suffix)), "")
        name = table.get_name(hf_name.removesuffix(suffix))
        if name is not None and names.setdefault(name + suffix, hf_name) != hf_name:
            raise ValueError(f"{hf_name} and {names[name + suffix]} would both be {name + suffix}")
    return names


def _tensor(fields: gguf_fields.Fields, entry: gguf_header.Entry, key: str) -> tensor_files.Tensor:
    layout = gguf_layouts.of(fields, entry)
    stored_dtype = dtype(fields.header, entry)
    shape = entry.shape[::-1] if layout and layout.transposes else entry.shape
    if layout is None and entry.type in _STORED:
        view = functools.partial(numbers, fields.header, entry)
    else:
        view = functools.partial(_compute, fields.header, entry, layout)
    given = np.dtype(np.float32) if layout and layout.calculates else stored_dtype
    return tensor_files.Tensor(fields.header.file, key, shape, given, view)


@functools.lru_cache(maxsize=1)
def _compute(
    header: gguf_header.Header, entry: gguf_header.Entry, layout: gguf_layouts.TensorLayout | None
) -> np.ndarray:
    """Kept because the shards of an array are asked for in turn."""
    array = numbers(header, entry)
    array = layout.restore(array) if layout else array
    array.flags.writeable = False
    return array


def dtype(header: gguf_header.Header, entry: gguf_header.Entry) -> np.dtype:
    """The type of a tensor's numbers: the stored one, or float32 for those that are quantised.

    Raises:
        UserError: a type that cannot be dequantised.
    """
    if entry.type not in _STORED and entry.type not in _quantised():
        choices = ", ".join(kind.name for kind in (*_STORED, *_quantised()))
        wrong = f"tensor {entry.name} has type {entry.type.name}, which is not supported; choices: {choices}"
        raise errors.UserError(f"{header.file}: {wrong}")
    return _STORED.get(entry.type, np.dtype(np.float32))


def stored_bytes(header: gguf_header.Header, entry: gguf_header.Entry) -> np.ndarray:
    """A tensor's bytes, mapped."""
    return np.memmap(header.file, np.uint8, "r", entry.offset, (entry.num_bytes,))


def numbers(header: gguf_header.Header, entry: gguf_header.Entry) -> np.ndarray:
    """A tensor's numbers: mapped if stored as such, otherwise dequantised to float32, all of them."""
    bytes_n = stored_bytes(header, entry)
    if entry.type in _STORED:
        return bytes_n.view(dtype(header, entry)).reshape(entry.shape)
    rows = bytes_n.reshape(gguf.quant_shape_to_byte_shape(entry.shape, entry.type))
    with np.errstate(all="ignore"):  # Damaged scales; whoever takes the numbers checks that they are finite.
        return gguf.quants.dequantize(rows, entry.type)


@functools.cache
def _quantised() -> tuple[gguf.GGMLQuantizationType, ...]:
    """The types that the `gguf` package dequantises: a block of each is tried."""
    return tuple(kind for kind in gguf.GGMLQuantizationType if kind not in _STORED and _dequantises(kind))


def _dequantises(kind: gguf.GGMLQuantizationType) -> bool:
    try:
        gguf.quants.dequantize(np.zeros((1, gguf.GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except NotImplementedError:
        return False
    return True
