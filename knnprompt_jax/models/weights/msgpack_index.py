"""Locate the tensors of a Flax msgpack file without reading their values.

`flax.serialization.msgpack_restore` reads a whole file into memory. Here the `msgpack` package reads only what stands
between the tensors, so that they can be mapped one by one. Nothing in such a file is executed. Format:
https://github.com/msgpack/msgpack/blob/master/spec.md and `flax.serialization`.
"""

import math
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import msgpack
import numpy as np

_NDARRAY = 1
# First bytes of maps; first bytes of extensions and binaries, with the number of bytes of the size behind them.
_MAPS = (*range(0x80, 0x90), 0xDE, 0xDF)
_EXTENSIONS = {0xC7: 1, 0xC8: 2, 0xC9: 4, **dict.fromkeys(range(0xD4, 0xD9), 0)}
_BINARIES = {0xC4: 1, 0xC5: 2, 0xC6: 4}
_WINDOW = 4096  # Bytes; more than a name or a shape takes.


class Index:
    """The positions of the arrays in the bytes of a file."""

    def __init__(self, bytes_: np.ndarray):
        self._bytes = bytes_
        self._at = 0

    def arrays(self, path: tuple[str, ...] = ()) -> Iterator[tuple[str, tuple[int, ...], np.dtype, int]]:
        """Yield the key (its parts joined by "."), shape, dtype and first byte of each array.

        Raises:
            ValueError, LookupError, TypeError: the bytes are not a whole Flax file.
        """
        if path and self._bytes[self._at] not in _MAPS:
            yield ".".join(path), *self._array()
        else:
            for _ in range(self._read("read_map_header")):
                yield from self.arrays((*path, self._read("unpack")))
        if not path and self._at != len(self._bytes):
            raise ValueError(f"it continues after the last array, which ends at byte {self._at}")

    def _read(self, method: str) -> Any:
        """Apply a method of `msgpack.Unpacker` to the next bytes."""
        unpacker = msgpack.Unpacker()
        unpacker.feed(self._bytes[self._at : self._at + _WINDOW])
        try:
            value = getattr(unpacker, method)()
        except msgpack.OutOfData:
            raise ValueError(f"at byte {self._at} it ends within a value, or holds no array") from None
        self._at += unpacker.tell()
        return value

    def _array(self) -> tuple[tuple[int, ...], np.dtype, int]:
        """Read an extension that holds the shape, dtype and bytes of an array."""
        width = _EXTENSIONS.get(self._bytes[self._at])
        if width is None or self._bytes[self._at + 1 + width] != _NDARRAY:
            raise ValueError(f"no array at byte {self._at}")
        self._at += 2 + width
        self._read("read_array_header")
        shape = tuple(self._read("unpack"))
        name = self._read("unpack")
        dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
        start = self._at + 1 + _BINARIES[self._bytes[self._at]]
        size = int.from_bytes(self._bytes[self._at + 1 : start], "big")
        end = start + math.prod(shape) * dtype.itemsize
        if dtype.hasobject or end != start + size or end > len(self._bytes):
            raise ValueError(f"an array at byte {self._at} whose bytes do not fit its shape, or the end of the file")
        self._at = end
        return shape, dtype, start
