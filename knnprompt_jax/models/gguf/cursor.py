"""The bytes of a GGUF file's head, taken one value after the other."""

import mmap
import struct
from typing import Any

import gguf
import numpy as np

_STRING, _ARRAY = gguf.GGUFValueType.STRING, gguf.GGUFValueType.ARRAY
_SCALARS = {
    **{
        gguf.GGUFValueType[f"{kind}{bits}"]: f"<{kind[0].lower()}{bits // 8}"
        for kind in ("UINT", "INT")
        for bits in (8, 16, 32, 64)
    },
    **{gguf.GGUFValueType.FLOAT32: "<f4", gguf.GGUFValueType.FLOAT64: "<f8", gguf.GGUFValueType.BOOL: "?"},
}


class Cursor:
    """Reads a file's head from front to back; what would lie beyond the end raises ValueError."""

    def __init__(self, data: mmap.mmap):
        self._data, self.at, self.size = data, 0, len(data)

    def take(self, count: int) -> bytes:
        if count > self.size - self.at:
            raise ValueError(f"its head goes on after its end at byte {self.size}")
        self.at += count
        return self._data[self.at - count : self.at]

    def number(self, dtype: str) -> Any:
        return self.array(dtype, 1).tolist()[0]

    def array(self, dtype: str, count: int) -> np.ndarray:
        return np.frombuffer(self.take(np.dtype(dtype).itemsize * count), dtype)

    def count(self, least_bytes: int) -> int:
        """A count of things that take so many bytes each, or more."""
        count = struct.unpack("<Q", self.take(8))[0]
        if count * least_bytes > self.size - self.at:
            raise ValueError(f"it has {self.size} bytes, too few for the {count} parts announced at byte {self.at - 8}")
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


def _dtype(kind: int) -> str:
    if kind not in _SCALARS:
        raise ValueError(f"it has metadata of the unknown type number {kind}")
    return _SCALARS[gguf.GGUFValueType(kind)]
