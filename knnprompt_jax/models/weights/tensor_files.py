"""The tensors of a weight folder: safetensors, Flax msgpack or PyTorch bin, in one file or in shards under an index.

Headers are read at once, values on demand. Each read of safetensors and Flax files maps its tensor again and releases
it with the view, so that only the tensors in use take memory. PyTorch's own files are mapped until all are read.

The fingerprint of a model is the SHA-256 of the content of every file that decides its results.
"""

import dataclasses
import functools
import hashlib
import json
import math
import pathlib
import pickle
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures

import ml_dtypes
import numpy as np
import safetensors

from knnprompt_jax import errors, files
from knnprompt_jax.models.weights import msgpack_index

# In the order of preference; the sharded form is `<file>.index.json`.
FORMATS = ("model.safetensors", "flax_model.msgpack", "pytorch_model.bin")
_SAFETENSORS_DTYPES = {
    **{"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16},
    **{"I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8, "U8": np.uint8, "BOOL": np.bool_},
}
# Exceptions that the readers raise on damaged files.
_CORRUPT = (
    *(OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, SyntaxError),
    *(pickle.UnpicklingError, safetensors.SafetensorError),
)
# Files of a model folder besides the weights. Others (README.md, generation_config.json) change no result.
_SMALL_FILES = (
    "config.json",
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "vocab.txt", "merges.txt", "*.model", "*.tiktoken"),
    *("modules.json", "sentence_bert_config.json", "*_Pooling/config.json"),  # Sentence encoders.
)


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor of a file.

    `view()` maps it, so that slicing the view reads only the slice. It dequantises a tensor of a GGUF file whole.
    """

    file: pathlib.Path
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype
    view: Callable[[], np.ndarray]


def pick(names: Iterable[str]) -> str | None:
    """Return the preferred weight file among these names (or the index of its shards); None if there are no weights."""
    names = set(names)
    return next((name for file in FORMATS for name in (file, f"{file}.index.json") if name in names), None)


def find(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return the weight files of a folder, in its preferred format.

    Raises:
        UserError: there are no weights, or an index names a missing file or one outside the folder.
    """
    name = pick(path.name for path in folder.iterdir())
    if name is None:
        raise errors.UserError(f"{folder}: no weights; choices: {', '.join(FORMATS)}, or an index of one of them")
    index = folder / name
    if index.suffix != ".json":
        return [index]
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        paths = [pathlib.PurePath(name) for name in names]
        if outside := [path for path in paths if path.is_absolute() or ".." in path.parts]:
            raise ValueError(f"it names {str(outside[0])!r}, which is outside the folder")
        missing = [name for name in names if not (folder / name).is_file()]
    except (*_CORRUPT, RecursionError) as error:
        raise errors.UserError(f"{index}: not an index of weights: {errors.one_line(error)}") from None
    if missing or not names:
        listed = ", ".join(missing[:8])
        raise errors.UserError(
            f"{index}: {len(missing)} of the {len(names)} files that it names do not exist: {listed}"
        )
    return [folder / name for name in names]


def read(files: Iterable[pathlib.Path]) -> Iterator[Tensor]:
    """Return all tensors of the files; only headers are read.

    Raises:
        UserError: a file is truncated or not of its format, or PyTorch is needed and not installed.
    """
    readers = {".safetensors": _read_safetensors, ".msgpack": _read_msgpack, ".bin": _read_torch}
    for file in files:
        try:
            yield from readers[file.suffix](file)
        except errors.UserError:
            raise
        except _CORRUPT as error:
            raise errors.UserError(f"{file}: truncated or corrupt: {errors.one_line(error)}") from None


def _read_safetensors(file: pathlib.Path) -> Iterator[Tensor]:
    with safetensors.safe_open(file, "numpy") as stream:  # Checks that the tensors fill the file without gaps.
        entries = [(key, stream.get_slice(key)) for key in stream.offset_keys()]
        headers = [(key, entry.get_dtype(), tuple(entry.get_shape())) for key, entry in entries]
    with file.open("rb") as head:
        offset = 8 + int.from_bytes(head.read(8), "little")
    for key, kind, shape in headers:
        if kind not in _SAFETENSORS_DTYPES:
            choices = ", ".join(_SAFETENSORS_DTYPES)
            raise errors.UserError(f"{file}: tensor {key} has type {kind}; supported: {choices}")
        dtype = np.dtype(_SAFETENSORS_DTYPES[kind])
        yield Tensor(file, key, shape, dtype, functools.partial(np.memmap, file, dtype, "r", offset, shape))
        offset += dtype.itemsize * math.prod(shape)


def _read_msgpack(file: pathlib.Path) -> Iterator[Tensor]:
    for key, shape, dtype, offset in msgpack_index.Index(np.memmap(file, np.uint8, "r")).arrays():
        yield Tensor(file, key, shape, dtype, functools.partial(np.memmap, file, dtype, "r", offset, shape))


def _read_torch(file: pathlib.Path) -> Iterator[Tensor]:
    """Yield the tensors of a state dict, mapped; files of PyTorch below 1.6 are read whole."""
    try:
        import torch
    except ImportError:
        advice = "`pip install torch`, or convert it to safetensors"
        raise errors.UserError(f"{file}: reading it needs PyTorch: {advice}") from None
    with file.open("rb") as stream:
        is_zip = stream.read(4) == b"PK\x03\x04"
    try:
        state = torch.load(file, map_location="cpu", weights_only=True, mmap=is_zip)
    except pickle.UnpicklingError as error:  # PyTorch's own message tells how to run the code.
        named = re.search(r"GLOBAL (\S+)", str(error))
        code = f"code that would run ({named[1]})" if named else "more than tensors"
        raise errors.UserError(f"{file}: not read: it holds {code}, or is damaged; use safetensors instead") from None
    if not isinstance(state, dict):
        raise ValueError("it holds no dictionary of tensors")

    def view(tensor: torch.Tensor, dtype: np.dtype) -> np.ndarray:
        tensor = tensor.detach().contiguous()
        if dtype == ml_dtypes.bfloat16:  # PyTorch cannot convert it: the bits are passed as integers.
            return tensor.view(torch.int16).numpy().view(dtype)
        return tensor.numpy()

    for key, tensor in state.items():
        dtype = np.dtype(str(tensor.dtype).removeprefix("torch."))
        yield Tensor(file, key, tuple(tensor.shape), dtype, functools.partial(view, tensor, dtype))


def fingerprint(path: pathlib.Path) -> str:
    """Return the SHA-256 (hex) of a GGUF file, or of a model folder's weights, config.json and tokenizer files.

    The path does not matter. The hash of each file is remembered in the user's cache folder until its size or times
    change.

    Raises:
        UserError: a file is missing or cannot be read.
    """
    with files.refusals(path):
        if not path.is_dir():
            return files.sha256(path)
        sources = sorted({*find(path), *(file for name in _SMALL_FILES for file in path.glob(name))})
        names = [file.relative_to(path).as_posix() for file in sources]
        with futures.ThreadPoolExecutor(8) as pool:  # Hashing releases Python's lock.
            hashes = list(pool.map(files.sha256, sources))
        return hashlib.sha256(json.dumps([names, hashes]).encode()).hexdigest()
