"""The numbers of a GGUF file's tensors, as stored or dequantised."""

import functools

import gguf
import ml_dtypes
import numpy as np

from knnprompt_jax import errors
from knnprompt_jax.models.gguf import header as gguf_header

_STORED = {
    gguf.GGMLQuantizationType.F32: np.dtype(np.float32),
    gguf.GGMLQuantizationType.F16: np.dtype(np.float16),
    gguf.GGMLQuantizationType.BF16: np.dtype(ml_dtypes.bfloat16),
    gguf.GGMLQuantizationType.F64: np.dtype(np.float64),
}


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


def is_quantised(entry: gguf_header.Entry) -> bool:
    return entry.type not in _STORED


def stored(header: gguf_header.Header, entry: gguf_header.Entry) -> np.ndarray:
    """A tensor's bytes, mapped."""
    return np.memmap(header.file, np.uint8, "r", entry.offset, (entry.num_bytes,))


def read(header: gguf_header.Header, entry: gguf_header.Entry) -> np.ndarray:
    """A tensor's numbers: mapped if stored as such, otherwise dequantised to float32, all of them."""
    bytes_n = stored(header, entry)
    if not is_quantised(entry):
        return bytes_n.view(dtype(header, entry)).reshape(entry.shape)
    rows = bytes_n.reshape(gguf.quant_shape_to_byte_shape(entry.shape, entry.type))
    with np.errstate(all="ignore"):  # Damaged scales; whoever takes the numbers checks that they are finite.
        return gguf.quants.dequantize(rows, entry.type)


@functools.cache
def _quantised() -> tuple[gguf.GGMLQuantizationType, ...]:
    """The types that the `gguf` package dequantises, found by trying a block of each."""
    return tuple(kind for kind in gguf.GGMLQuantizationType if kind not in _STORED and _dequantises(kind))


def _dequantises(kind: gguf.GGMLQuantizationType) -> bool:
    try:
        gguf.quants.dequantize(np.zeros((1, gguf.GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except NotImplementedError:
        return False
    return True
