"""The header of a GGUF file: its metadata, read value by value and validated, and the place of each tensor.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3. `gguf.GGUFReader` is not used: it makes an array
for each token, and does not return if a damaged count is huge.
"""

import dataclasses
import functools
import math
import mmap
import os
import pathlib
import struct
from typing import Any

import gguf
import numpy as np

from knnprompt_jax import errors
from knnprompt_jax.models import hf_config

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_QUANTISATIONS = {kind.value: kind for kind in gguf.GGMLQuantizationType}
_MAX_DIMENSIONS = 4
_STRING, _ARRAY, _SCALARS = gguf.GGUFValueType.STRING, gguf.GGUFValueType.ARRAY, gguf.GGUFReader.gguf_scalar_to_np

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "olmo2", "smollm3", "gptneox", "gpt2")
# These values do not change the model's results.
_HARMLESS = ("vocab_size", "tensor_data_layout", "rope.scaling.finetuned")


@dataclasses.dataclass(frozen=True)
class Entry:
    """A tensor of a file: its shape in NumPy's order (longest stride first) and the place of its bytes."""

    name: str
    shape: tuple[int, ...]
    type: gguf.GGMLQuantizationType
    offset: int
    num_bytes: int


@dataclasses.dataclass(frozen=True, eq=False)
class Header:
    """The metadata (int, float, bool, str, lists of str, arrays of numbers) and tensors of a file."""

    file: pathlib.Path
    metadata: dict[str, Any]
    tensors: dict[str, Entry]


class _Cursor:
    """Reads a header from front to back; raises ValueError beyond the end of the file."""

    def __init__(self, data: mmap.mmap):
        self._data, self.at, self.size = data, 0, len(data)

    def take(self, count: int) -> bytes:
        if count > self.size - self.at:
            raise ValueError(f"its header is longer than the file, which ends at byte {self.size}")
        self.at += count
        return self._data[self.at - count : self.at]

    def number(self, dtype: str) -> Any:
        return self.array(dtype, 1).tolist()[0]

    def array(self, dtype: np.typing.DTypeLike, count: int) -> np.ndarray:
        return np.frombuffer(self.take(np.dtype(dtype).itemsize * count), dtype)

    def count(self, least_bytes: int) -> int:
        """Read the number of items that take at least `least_bytes` each."""
        count = struct.unpack("<Q", self.take(8))[0]
        if count * least_bytes > self.size - self.at:
            raise ValueError(f"it has {self.size} bytes, too few for the {count} items announced at byte {self.at - 8}")
        return count

    def text(self) -> str:
        return self.take(struct.unpack("<Q", self.take(8))[0]).decode("utf-8")

    def value(self) -> Any:
        kind = self.number("<u4")
        if kind == _ARRAY:
            kind = self.number("<u4")
            if kind == _STRING:
                return [self.text() for _ in range(self.count(8))]
            return self.array(_dtype(kind), self.count(1))
        if kind == _STRING:
            return self.text()
        number = self.array(_dtype(kind), 1)[0]
        # The shortest decimal number that float32 rounds so: 1e-05, and not 9.999999747378752e-06.
        return float(str(number)) if isinstance(number, np.float32) else number.item()


def _dtype(kind: int) -> np.dtype:
    if kind not in _SCALARS:
        raise ValueError(f"it has metadata of the unknown type number {kind}")
    return np.dtype(_SCALARS[gguf.GGUFValueType(kind)]).newbyteorder("<")


def read(file: pathlib.Path) -> Header:
    """Return the header of a file; the last one is kept until its file changes.

    Raises:
        UserError: the file is missing, no GGUF file, of an unknown version, truncated, corrupt, or one part of several.
    """
    try:
        stat = os.stat(file)
        return _read(pathlib.Path(file), stat.st_size, stat.st_mtime_ns)
    except errors.UserError:
        raise
    except (OSError, ValueError, struct.error) as error:
        raise errors.UserError(f"{file}: truncated or corrupt: {error}".splitlines()[0]) from None


class Fields(hf_config.Fields):
    """The values of a file whose keys begin with `prefix`, under the rest of the key."""

    def __init__(self, header: Header, prefix: str):
        values = {key.removeprefix(prefix): value for key, value in header.metadata.items() if key.startswith(prefix)}
        super().__init__(values, str(header.file), prefix)
        self.header = header

    @property
    def arch(self) -> str:
        return self.prefix.removesuffix(".")

    def _matters(self, key: str, value: Any) -> bool:
        """Return whether an unread value may change the model: not if it is 0, false or empty."""
        return key not in _HARMLESS and bool(value.any() if isinstance(value, np.ndarray) else value)


def model_fields(header: Header) -> Fields:
    """Return the values under the architecture's prefix; raises UserError if the architecture is not supported."""
    return Fields(header, Fields(header, "general.").choice("architecture", None, ARCHITECTURES) + ".")


def tokenizer_fields(header: Header) -> Fields:
    """Return the values that describe the tokenizer."""
    return Fields(header, "tokenizer.ggml.")


def num_layers(fields: Fields) -> int:
    """Return the number of layers; raises UserError if the tensors belong to another number of layers."""
    layers = fields.size("block_count")
    names = [name.split(".") for name in fields.header.tensors]
    found = len({parts[1] for parts in names if parts[0] == "blk" and len(parts) > 2})
    if found != layers:
        raise fields.wrong("block_count", f"{layers} layers, but the tensors belong to {found}")
    return layers


@functools.lru_cache(maxsize=1)
def _read(file: pathlib.Path, size: int, changed: int) -> Header:
    if not size:
        raise ValueError("it is empty")
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        cursor = _Cursor(data)
        if (magic := cursor.take(4)) != _MAGIC:
            raise errors.UserError(f"{file}: no GGUF file: it begins with {magic!r}, not {_MAGIC!r}")
        version = cursor.number("<u4")
        if version not in _VERSIONS:
            reason = f"of GGUF version {version}" if version & 0xFFFF else "big-endian, which is not supported"
            raise errors.UserError(f"{file}: {reason}; supported: little-endian, version 2 or 3")
        num_tensors, num_values = cursor.count(24), cursor.count(13)
        metadata: dict[str, Any] = {}
        for _ in range(num_values):
            key = cursor.text()
            if key in metadata:
                raise ValueError(f"it has two metadata values {key!r}")
            metadata[key] = cursor.value()
        if metadata.get("split.count", 1) not in (0, 1):
            parts = metadata["split.count"]
            raise errors.UserError(f"{file}: one of {parts} parts; join them with `llama-gguf-split --merge` first")
        return Header(file, metadata, _read_entries(file, cursor, num_tensors, metadata))


def _read_entries(file: pathlib.Path, cursor: _Cursor, num_tensors: int, metadata: dict[str, Any]) -> dict[str, Entry]:
    """Read the place of each tensor. Offsets count from the end of the header, rounded up to the alignment."""
    entries = [_read_entry(file, cursor) for _ in range(num_tensors)]
    alignment = metadata.get("general.alignment", gguf.GGUF_DEFAULT_ALIGNMENT)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise ValueError(f"general.alignment={alignment!r} is no power of two")
    start = math.ceil(cursor.at / alignment) * alignment
    placed = {entry.name: dataclasses.replace(entry, offset=start + entry.offset) for entry in entries}
    if len(placed) != len(entries):
        raise ValueError("it has two tensors of the same name")
    for entry in placed.values():
        if entry.offset % alignment or entry.offset + entry.num_bytes > cursor.size:
            end = entry.offset + entry.num_bytes
            raise ValueError(f"it has {cursor.size} bytes, and tensor {entry.name} lies at {entry.offset} to {end}")
    return placed


def _read_entry(file: pathlib.Path, cursor: _Cursor) -> Entry:
    name = cursor.text()
    num_dimensions = cursor.number("<u4")
    if not 1 <= num_dimensions <= _MAX_DIMENSIONS:
        raise ValueError(f"tensor {name} has {num_dimensions} dimensions")
    shape = tuple(reversed([cursor.number("<u8") for _ in range(num_dimensions)]))
    number, offset = cursor.number("<u4"), cursor.number("<u8")
    if number not in _QUANTISATIONS:
        raise errors.UserError(f"{file}: tensor {name} has the unknown quantisation type number {number}")
    kind = _QUANTISATIONS[number]
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    if not all(shape) or shape[-1] % block:
        raise ValueError(f"tensor {name} has shape {list(shape)}, which {kind.name} cannot have")
    return Entry(name, shape, kind, offset, math.prod(shape) // block * block_bytes)
