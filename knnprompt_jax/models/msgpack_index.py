"""Where the tensors of a Flax msgpack file lie, without reading them.

`flax.serialization.msgpack_restore` reads a whole file into memory; this walks the headers only, so that tensors can be
mapped one by one. Nothing in such a file is executed.
Format: https://github.com/msgpack/msgpack/blob/master/spec.md and `flax.serialization`.
"""

import dataclasses
import math
import mmap
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

_CHUNKED = "__msgpack_chunked_array__"
_NDARRAY, _NUMPY_SCALAR = 1, 3
# By the first byte of a value: its kind, and its size (of a number: its value), or in how many bytes that follows.
_FIXED = {
    **{first: ("int", first) for first in range(0x80)},
    **{base + size: (kind, size) for base, kind in ((0x80, "map"), (0x90, "array")) for size in range(16)},
    **{0xA0 + size: ("str", size) for size in range(32)},
    **{0xC0: ("nil", 0), 0xC2: ("bool", 0), 0xC3: ("bool", 1)},
    **{0xD4 + power: ("ext", 2**power) for power in range(5)},
}
_SIZED = {
    **{0xC4: ("bin", 1), 0xC5: ("bin", 2), 0xC6: ("bin", 4), 0xC7: ("ext", 1), 0xC8: ("ext", 2), 0xC9: ("ext", 4)},
    **{0xCC: ("int", 1), 0xCD: ("int", 2), 0xCE: ("int", 4), 0xCF: ("int", 8), 0xD9: ("str", 1), 0xDA: ("str", 2)},
    **{0xDB: ("str", 4), 0xDC: ("array", 2), 0xDD: ("array", 4), 0xDE: ("map", 2), 0xDF: ("map", 4)},
}


@dataclasses.dataclass(frozen=True)
class Span:
    """An array's bytes in the file: in one run, or in several where Flax has split a large array."""

    shape: tuple[int, ...]
    dtype: np.dtype
    offsets: tuple[int, ...]
    counts: tuple[int, ...]


def spans(data: mmap.mmap | bytes) -> dict[str, Span]:
    """Key (joined by ".") → where the array lies.

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
        kind, size = self._head()
        match kind:
            case "map":
                return {self.value(): self.value() for _ in range(size)}
            case "array":
                return [self.value() for _ in range(size)]
            case "str":
                return self._take(size).decode()
            case "ext":
                return self._array(self.at + 1 + size)
            case "bin":
                raise ValueError(f"bytes outside an array at offset {self.at}")
            case _:
                return size

    def _head(self) -> tuple[str, int]:
        """The kind of the next value, and its size (of a number: its value)."""
        first = self._take(1)[0]
        if first in _FIXED:
            return _FIXED[first]
        if first not in _SIZED:
            raise ValueError(f"an unknown msgpack type 0x{first:02x} at offset {self.at - 1}")
        kind, width = _SIZED[first]
        return kind, int.from_bytes(self._take(width), "big")

    def _array(self, end: int) -> Span:
        code = self._take(1)[0]
        if code not in (_NDARRAY, _NUMPY_SCALAR):
            raise ValueError(f"an unknown Flax type {code} at offset {self.at - 1}")
        self._head()
        shape, name, (_, size) = tuple(self.value()), self.value(), self._head()
        dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
        count = math.prod(shape)
        if dtype.hasobject:
            raise ValueError(f"an array of Python objects at offset {self.at}")
        if self.at + size != end or count * dtype.itemsize != size:
            raise ValueError(f"an array whose size is not that of its shape at offset {self.at}")
        offset = self.at
        self._skip(size)
        return Span(shape, dtype, (offset,), (count,))

    def _take(self, size: int) -> bytes:
        at = self.at
        self._skip(size)
        return self.data[at : self.at]

    def _skip(self, size: int) -> None:
        self.at += size
        if self.at > len(self.data):
            raise ValueError(f"it ends after {len(self.data)} bytes, within a value")


def _flatten(tree: dict, prefix: str) -> Iterator[tuple[str, Span]]:
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and _CHUNKED in value:
            yield path, _join(value)
        elif isinstance(value, dict):
            yield from _flatten(value, f"{path}.")
        elif isinstance(value, Span):
            yield path, value
        else:
            raise ValueError(f"{path} is no array")


def _join(chunked: dict) -> Span:
    shape = tuple(chunked["shape"].values())
    chunks = list(chunked["chunks"].values())
    offsets, counts = tuple(chunk.offsets[0] for chunk in chunks), tuple(chunk.counts[0] for chunk in chunks)
    if sum(counts) != math.prod(shape):
        raise ValueError("a split array whose parts do not add up to its shape")
    return Span(shape, chunks[0].dtype, offsets, counts)
