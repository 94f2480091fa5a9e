"""Locate the tensors of a Flax msgpack file without reading their values.

`flax.serialization.msgpack_restore` reads a whole file into memory. Here the `msgpack` package reads only what stands between the
tensors, so that they can be mapped one by one. Nothing in such a file is executed.
Format: https://github.com/msgpack/msgpack/blob/master/spec.md and `flax.serialization`.
"""

import dataclasses
import math
import mmap
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import msgpack
import numpy as np

_CHUNKED = "__msgpack_chunked_array__"
_NDARRAY, _NUMPY_SCALAR = 1, 3
# First bytes of maps; first bytes of extensions with the number of bytes of their size, or their size itself.
_MAPS = (*range(0x80, 0x90), 0xDE, 0xDF)
_EXTENSIONS, _FIXED_EXTENSIONS = {0xC7: 1, 0xC8: 2, 0xC9: 4}, {0xD4 + power: 2**power for power in range(5)}
_WINDOW = 4096  # Bytes; more than a name or a shape takes.


@dataclasses.dataclass(frozen=True)
class Span:
    """The bytes of an array in the file: one run, or several if Flax split a large array."""

    shape: tuple[int, ...]
    dtype: np.dtype
    offsets: tuple[int, ...]
    counts: tuple[int, ...]


def spans(data: mmap.mmap | bytes) -> dict[str, Span]:
    """Return the span of each array by its key, whose parts are joined by ".".

    Raises:
        ValueError: the bytes are not a whole Flax file.
    """
    cursor = _Cursor(data)
    tree = cursor.value()
    if cursor.at != len(data) or not isinstance(tree, dict):
        raise ValueError("it is not one msgpack map")
    return dict(_flatten(tree, ""))


class _Cursor:
    def __init__(self, data: mmap.mmap | bytes):
        self.data, self.at = data, 0

    def value(self) -> Any:
        first = self.data[self.at] if self.at < len(self.data) else None
        if first in _MAPS:
            return {self._read("unpack"): self.value() for _ in range(self._read("read_map_header"))}
        if first in _EXTENSIONS or first in _FIXED_EXTENSIONS:
            return self._array(first)
        return self._read("unpack")

    def _read(self, method: str) -> Any:
        """Apply a method of `msgpack.Unpacker` to the next bytes."""
        unpacker = msgpack.Unpacker()
        unpacker.feed(self.data[self.at : self.at + _WINDOW])
        try:
            value = getattr(unpacker, method)()
        except msgpack.OutOfData:
            raise ValueError(f"at offset {self.at} it ends within a value, or holds no array") from None
        self.at += unpacker.tell()
        return value

    def _array(self, first: int) -> Span:
        """Read an extension that holds the shape, dtype and bytes of an array."""
        width = _EXTENSIONS.get(first, 0)
        given = self.data[self.at + 1 : self.at + 1 + width]
        size = int.from_bytes(given, "big") if width else _FIXED_EXTENSIONS[first]
        code, self.at = self.data[self.at + 1 + width], self.at + 2 + width
        end = self.at + size
        if code not in (_NDARRAY, _NUMPY_SCALAR):
            raise ValueError(f"an unknown Flax type {code} at offset {self.at - 1}")
        self._read("read_array_header")
        shape, name = tuple(self._read("unpack")), self._read("unpack")
        dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
        if dtype.hasobject:
            raise ValueError(f"an array of Python objects at offset {self.at}")
        count = math.prod(shape)
        offset = end - count * dtype.itemsize
        if int.from_bytes(self.data[self.at + 1 : offset], "big") != end - offset or end > len(self.data):
            raise ValueError(f"an array at offset {self.at} whose bytes do not fit its shape, or the end of the file")
        self.at = end
        return Span(shape, dtype, (offset,), (count,))


def _flatten(tree: dict, prefix: str) -> Iterator[tuple[str, Span]]:
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and _CHUNKED in value:
            chunks = list(value["chunks"].values())
            offsets, counts = tuple(chunk.offsets[0] for chunk in chunks), tuple(chunk.counts[0] for chunk in chunks)
            shape = tuple(value["shape"].values())
            if sum(counts) != math.prod(shape):
                raise ValueError(f"{path} is split into parts that do not add up to its shape")
            yield path, Span(shape, chunks[0].dtype, offsets, counts)
        elif isinstance(value, dict):
            yield from _flatten(value, f"{path}.")
        elif isinstance(value, Span):
            yield path, value
        else:
            raise ValueError(f"{path} is no array")
