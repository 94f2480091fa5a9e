"""The tensors of a GGUF file, quantised or not, under the names and in the layouts of Hugging Face.

llama.cpp's converter (its folder `conversion`) rearranges some tensors; that is undone here.
"""

import functools
import pathlib
from collections.abc import Callable, Iterable, Iterator

import gguf
import ml_dtypes
import numpy as np

from knnprompt_jax import errors
from knnprompt_jax.models.gguf import header as gguf_header
from knnprompt_jax.models.weights import tensor_files

# Factors of rotary frequencies, which are part of the config.
_ROPE_TENSOR = "rope_freqs.weight"
_STORED = {
    gguf.GGMLQuantizationType.F32: np.dtype(np.float32),
    gguf.GGMLQuantizationType.F16: np.dtype(np.float16),
    gguf.GGMLQuantizationType.BF16: np.dtype(ml_dtypes.bfloat16),
    gguf.GGMLQuantizationType.F64: np.dtype(np.float64),
}

# Changes the layout or the numbers of an array from llama.cpp's to Hugging Face's.
_Restore = Callable[[np.ndarray], np.ndarray]


def read_tensors(file: pathlib.Path, hf_names: Iterable[str]) -> Iterator[tensor_files.Tensor]:
    """Return all tensors of the file; only its head is read.

    A view of quantised numbers is float32 and dequantises its whole tensor. Only the last such array is kept, until
    `release`.

    Args:
        file: the GGUF file.
        hf_names: full names that the model expects; other tensors keep their name in the file.

    Raises:
        UserError: as `gguf_header.read`, or an unsupported architecture or number of heads.
    """
    fields = gguf_header.model_fields(gguf_header.read(file))
    names = translate(file, hf_names)
    for name, tensor in fields.header.tensors.items():
        if name == _ROPE_TENSOR:
            continue
        shape = fields.header.shape(name)
        restore = _restoration(fields, name)
        if restore is None and tensor.tensor_type in _STORED:
            dtype = _STORED[tensor.tensor_type]
            view = functools.partial(numbers, fields.header, name)
        else:
            dtype = np.dtype(np.float32)
            view = functools.partial(_compute, fields.header, name, restore)
        yield tensor_files.Tensor(fields.header.file, names.get(name, name), shape, dtype, view)


def release() -> None:
    """Free the array that was computed last."""
    _compute.cache_clear()


def numbers(header: gguf_header.Header, name: str) -> np.ndarray:
    """Return a tensor's numbers: mapped if they are stored as such, otherwise dequantised to float32.

    Raises:
        UserError: a type that cannot be dequantised.
    """
    tensor = header.tensors[name]
    if tensor.tensor_type in _STORED:
        return tensor.data.view(_STORED[tensor.tensor_type])
    try:
        with np.errstate(all="ignore"):  # Damaged scales; the reader of the numbers checks that they are finite.
            return gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    except NotImplementedError as error:
        raise errors.UserError(f"{header.file}: tensor {name}: {error}") from None


def translate(file: pathlib.Path, hf_names: Iterable[str]) -> dict[str, str]:
    """Return the expected name for each name in the file; raise UserError as `read_tensors`."""
    fields = gguf_header.model_fields(gguf_header.read(file))
    arch = next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == fields.arch)
    table = gguf.get_tensor_name_map(arch, gguf_header.num_layers(fields))
    names: dict[str, str] = {}
    for hf_name in hf_names:
        name = table.get_name(hf_name, (".weight", ".bias"))
        if name is not None and names.setdefault(name, hf_name) != hf_name:
            raise ValueError(f"{hf_name} and {names[name]} would both be {name}")
    return names


@functools.lru_cache(maxsize=1)
def _compute(header: gguf_header.Header, name: str, restore: _Restore | None) -> np.ndarray:
    """Return a tensor's numbers in float32. The last are kept, since the shards of an array are read in turn."""
    array = numbers(header, name).astype(np.float32, copy=False)
    array = restore(array) if restore else array
    array.flags.writeable = False
    return array


def _restoration(fields: gguf_header.Fields, name: str) -> _Restore | None:
    """Return how to restore a tensor; None if llama.cpp keeps it. Raises UserError if the heads do not divide it."""
    part = name.split(".", 2)[-1]
    if fields.arch == "gemma3" and name.endswith("norm.weight"):
        return lambda array: array - np.float32(1)
    if fields.arch == "llama" and part.startswith(("attn_q.", "attn_k.")):
        heads = fields.size("attention.head_count")
        if part.startswith("attn_k."):
            heads = fields.size("attention.head_count_kv", heads)
        shape = fields.header.shape(name)
        if shape[0] % (2 * heads):
            raise fields.wrong("attention.head_count", f"{heads} heads do not divide {name} of shape {list(shape)}")
        return lambda array: _separate_pairs(array, heads)
    return None


def _separate_pairs(array: np.ndarray, heads: int) -> np.ndarray:
    """Change the order within each head from x0 y0 x1 y1 … to x0 x1 … y0 y1 …."""
    return array.reshape(heads, -1, 2, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)
