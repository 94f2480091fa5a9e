"""Tensors of a weight folder, lazily: safetensors, Flax msgpack or PyTorch bin, one file or shards under an index.

Headers are read at once, values when asked for: each read maps its tensor anew and releases it with the view,
so that memory holds what is in use.
"""

import dataclasses
import functools
import json
import math
import mmap
import pathlib
import pickle
import re
import types
from collections.abc import Callable, Iterable, Iterator

import ml_dtypes
import numpy as np
import safetensors

from knnprompt_jax import errors
from knnprompt_jax.models import msgpack_index

# In the order of preference; the sharded form is `<file>.index.json`.
FORMATS = ("model.safetensors", "flax_model.msgpack", "pytorch_model.bin")
_SAFETENSORS_DTYPES = {
    **{"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16},
    **{"I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8, "U8": np.uint8, "BOOL": np.bool_},
}
# What the readers raise on bytes that are not what they should be.
_CORRUPT = (
    *(OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, SyntaxError),
    *(pickle.UnpicklingError, safetensors.SafetensorError),
)


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One tensor of a file; `view()` maps it, so that slicing the view reads only the slice."""

    file: pathlib.Path
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype
    view: Callable[[], np.ndarray]


def pick(names: Iterable[str]) -> str | None:
    """The preferred of these names: a file with all weights, or an index of several; None if there are no weights."""
    names = set(names)
    return next((name for file in FORMATS for name in (file, f"{file}.index.json") if name in names), None)


def find(folder: pathlib.Path) -> list[pathlib.Path]:
    """The weight files of a folder, in its preferred format. Raises UserError: there are none, or an index names a missing file."""
    name = pick(path.name for path in folder.iterdir())
    if name is None:
        raise errors.UserError(f"{folder}: no weights; choices: {', '.join(FORMATS)}, or an index of one of them")
    return _shards(folder / name) if name.endswith(".index.json") else [folder / name]


def read(files: Iterable[pathlib.Path]) -> Iterator[Tensor]:
    """All tensors of the files, from their headers alone.

    Raises:
        UserError: a file is truncated or not of its format, or PyTorch is needed and not installed.
    """
    readers = {".safetensors": _safetensors, ".msgpack": _msgpack, ".bin": _torch}
    for file in files:
        try:
            yield from readers[file.suffix](file)
        except errors.UserError:
            raise
        except _CORRUPT as error:
            raise errors.UserError(f"{file}: truncated or corrupt: {_one_line(error)}") from None


def release() -> None:
    """Closes the PyTorch file that was read last; the other formats keep nothing open."""
    _load_torch.cache_clear()


def _shards(index: pathlib.Path) -> list[pathlib.Path]:
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except _CORRUPT as error:
        raise errors.UserError(f"{index}: not an index of weights: {_one_line(error)}") from None
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing or not names:
        listed = ", ".join(missing[:8])
        raise errors.UserError(f"{index}: names {len(missing)} of {len(names)} files that are not there: {listed}")
    return [index.parent / name for name in names]


def _safetensors(file: pathlib.Path) -> Iterator[Tensor]:
    with safetensors.safe_open(file, "numpy") as stream:  # Checks that the tensors fill the file without gaps.
        entries = [(key, stream.get_slice(key)) for key in stream.offset_keys()]
        described = [(key, entry.get_dtype(), tuple(entry.get_shape())) for key, entry in entries]
    with file.open("rb") as head:
        offset = 8 + int.from_bytes(head.read(8), "little")
    for key, kind, shape in described:
        if kind not in _SAFETENSORS_DTYPES:
            choices = ", ".join(_SAFETENSORS_DTYPES)
            raise errors.UserError(f"{file}: tensor {key} has type {kind}; supported: {choices}")
        dtype = np.dtype(_SAFETENSORS_DTYPES[kind])
        yield Tensor(file, key, shape, dtype, functools.partial(np.memmap, file, dtype, "r", offset, shape))
        offset += dtype.itemsize * math.prod(shape)


def _msgpack(file: pathlib.Path) -> Iterator[Tensor]:
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        spans = msgpack_index.spans(data)
    for key, span in spans.items():
        yield Tensor(file, key, span.shape, span.dtype, functools.partial(_map_span, file, span))


def _map_span(file: pathlib.Path, span: msgpack_index.Span) -> np.ndarray:
    places = zip(span.offsets, span.counts, strict=True)
    runs = [np.memmap(file, span.dtype, "r", offset, (count,)) for offset, count in places]
    return (runs[0] if len(runs) == 1 else np.concatenate(runs)).reshape(span.shape)


def _torch(file: pathlib.Path) -> Iterator[Tensor]:
    for key, tensor in _load_torch(file).items():
        if not isinstance(tensor, _import_torch(file).Tensor):
            raise ValueError(f"{key} is no tensor")
        dtype = np.dtype(str(tensor.dtype).removeprefix("torch."))
        yield Tensor(file, key, tuple(tensor.shape), dtype, functools.partial(_torch_view, file, key, dtype))


def _torch_view(file: pathlib.Path, key: str, dtype: np.dtype) -> np.ndarray:
    tensor = _load_torch(file)[key].detach().contiguous()
    if dtype == ml_dtypes.bfloat16:  # Which NumPy does not know: the bits go over as integers.
        return tensor.view(_import_torch(file).int16).numpy().view(dtype)
    return tensor.numpy()


@functools.lru_cache(maxsize=1)
def _load_torch(file: pathlib.Path) -> dict:
    """The file's state dict, mapped; only the last file stays open. Files of PyTorch below 1.6 are read whole."""
    torch = _import_torch(file)
    with file.open("rb") as stream:
        is_zip = stream.read(4) == b"PK\x03\x04"
    try:
        state = torch.load(file, map_location="cpu", weights_only=True, mmap=is_zip)
    except pickle.UnpicklingError as error:  # PyTorch's own message tells how to run the code.
        named = re.search(r"GLOBAL (\S+)", str(error))
        code = f"code that would run ({named[1]})" if named else "more than tensors"
        raise errors.UserError(f"{file}: not read: it holds {code}, or is damaged; have it as safetensors") from None
    if not isinstance(state, dict):
        raise ValueError("it holds no dictionary of tensors")
    return state


def _import_torch(file: pathlib.Path) -> types.ModuleType:
    try:
        import torch
    except ImportError:
        advice = "`pip install torch`, or convert it to safetensors"
        raise errors.UserError(f"{file}: reading it needs PyTorch: {advice}") from None
    return torch


def _one_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
