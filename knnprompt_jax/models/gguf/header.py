"""The header of a GGUF file: its metadata, validated when they are used, and its tensors, mapped into memory.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3.
"""

import dataclasses
import functools
import os
import pathlib
from typing import Any

import gguf
import numpy as np

from knnprompt_jax import errors
from knnprompt_jax.models import hf_config

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3")
_TEXTS = [gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.STRING]
_LENGTH_BYTES = 8  # Of a text, before it.
_MAX_AXES = 4  # Of a tensor, in ggml.
# These values do not change the model's results.
_HARMLESS = ("vocab_size", "tensor_data_layout", "rope.scaling.finetuned", "rope.scaling.original_context_length")


@dataclasses.dataclass(frozen=True, eq=False)
class Header:
    """The metadata (int, float, bool, str, lists of them) and tensors of a file."""

    file: pathlib.Path
    metadata: dict[str, Any]
    tensors: dict[str, gguf.ReaderTensor]

    def shape(self, name: str) -> tuple[int, ...]:
        """Return a tensor's shape in NumPy's order (longest stride first)."""
        return tuple(self.tensors[name].shape[::-1].tolist())


def read(file: pathlib.Path) -> Header:
    """Return the header of a file; the last one is kept until its file changes.

    Raises:
        UserError: the file is missing, no GGUF file, of an unknown version, truncated, corrupt, or one part of several.
    """
    try:
        stat = os.stat(file)
        header = _read(pathlib.Path(file), stat.st_size, stat.st_mtime_ns)
    except Exception as error:  # `gguf` raises whatever damaged numbers lead to.
        raise errors.UserError(f"{file}: no readable GGUF file, perhaps truncated: {error}".splitlines()[0]) from None
    if (parts := header.metadata.get("split.count", 1)) not in (0, 1):
        raise errors.UserError(f"{file}: one of {parts} parts; join them with `llama-gguf-split --merge` first")
    return header


class Fields(hf_config.Fields):
    """The metadata of a file whose keys begin with `prefix`, by key without the prefix."""

    def __init__(self, header: Header, prefix: str):
        values = {key.removeprefix(prefix): value for key, value in header.metadata.items() if key.startswith(prefix)}
        super().__init__(values, str(header.file), prefix)
        self.header = header

    @property
    def arch(self) -> str:
        return self.prefix.removesuffix(".")

    def _matters(self, key: str, value: Any) -> bool:
        """Return whether an unread value may change the model: not if it is 0, false or empty."""
        return key not in _HARMLESS and bool(any(value) if isinstance(value, list) else value)


def model_fields(header: Header) -> Fields:
    """Return the values under the architecture's prefix; raises UserError if the architecture is not supported."""
    return Fields(header, Fields(header, "general.").choice("architecture", None, ARCHITECTURES) + ".")


def num_layers(fields: Fields) -> int:
    """Return the number of layers; raises UserError if the tensors belong to another number of layers."""
    layers = fields.size("block_count")
    names = [name.split(".") for name in fields.header.tensors]
    found = len({parts[1] for parts in names if parts[0] == "blk" and len(parts) > 2})
    if found != layers:
        raise fields.wrong("block_count", f"{layers} layers, but the tensors belong to {found}")
    return layers


class _Reader(gguf.GGUFReader):
    """`gguf`'s reader, which stops at the end of the file, however many items it announces, and reads arrays faster."""

    def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> np.ndarray:
        return np.frombuffer(self.data, dtype, int(count), int(offset))  # Raises ValueError beyond the end.

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> tuple[int, list, list[int], list[gguf.GGUFValueType]]:
        if raw_type != gguf.GGUFValueType.ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        kind = self._get(orig_offs, np.uint32)
        length = self._get(orig_offs + 4, np.uint64)
        item = gguf.GGUFValueType(kind[0])
        if item in self.gguf_scalar_to_np:
            numbers = self._get(orig_offs + 12, self.gguf_scalar_to_np[item], length[0])
            return 12 + numbers.nbytes, [kind, length, numbers], [2], [gguf.GGUFValueType.ARRAY, item]
        if item != gguf.GGUFValueType.STRING:
            raise ValueError(f"an array of {item.name} at byte {orig_offs}")
        self._check_room(length[0], _LENGTH_BYTES, orig_offs + 12, "texts")
        texts, stop = _read_texts(self.data, int(length[0]), orig_offs + 12)
        return stop - orig_offs, [kind, length, texts], [2], _TEXTS

    def _build_fields(self, offs: int, count: int) -> int:
        self._check_room(count, _LENGTH_BYTES + 4, offs, "metadata")
        return super()._build_fields(offs, int(count))

    def _build_tensor_info(self, offs: int, count: int) -> tuple[int, list[gguf.ReaderField]]:
        self._check_room(count, _LENGTH_BYTES + 4 + 8 + 4 + 8, offs, "tensors")
        return super()._build_tensor_info(offs, int(count))

    def _build_tensors(self, start_offs: int, fields: list[gguf.ReaderField]) -> None:
        for field in fields:
            shape = field.parts[3].tolist()
            if not 1 <= len(shape) <= _MAX_AXES or not all(shape):
                raise ValueError(f"tensor {field.name} has the shape {shape}")
        super()._build_tensors(start_offs, fields)

    def _check_room(self, count: int, num_bytes: int, offset: int, name: str) -> None:
        """Raise ValueError if the rest of the file is too short for `count` items of at least `num_bytes` each."""
        if int(count) * num_bytes > len(self.data) - offset:
            raise ValueError(f"it announces {count} {name}, but has {len(self.data)} bytes")


def _read_texts(data: np.ndarray, count: int, offset: int) -> tuple[list[str], int]:
    """Read texts with their lengths; return them and the offset behind them; raise ValueError beyond the end."""
    view = memoryview(data)  # type: ignore[arg-type]  # NumPy's stubs for Python 3.11 do not declare the buffer.
    texts = []
    for _ in range(count):
        start = offset + _LENGTH_BYTES
        offset = start + int.from_bytes(view[start - _LENGTH_BYTES : start], "little")
        if offset > len(view):
            raise ValueError(f"a text ends at byte {offset}, beyond the end")
        texts.append(str(view[start:offset], "utf-8"))
    return texts, offset


@functools.lru_cache(maxsize=1)
def _read(file: pathlib.Path, size: int, changed: int) -> Header:
    with np.errstate(over="ignore"):  # Offsets beyond 64 bits, which are found below.
        reader = _Reader(file)
    if reader.byte_order != "I":
        raise ValueError("it is big-endian, which is not supported")
    for tensor in reader.tensors:
        if tensor.data_offset < reader.data_offset or tensor.data_offset % reader.alignment:
            raise ValueError(f"tensor {tensor.name} lies at byte {tensor.data_offset}")
    metadata = {name: _value(field) for name, field in reader.fields.items()}
    return Header(file, metadata, {tensor.name: tensor for tensor in reader.tensors})


def _value(field: gguf.ReaderField) -> Any:
    if field.types == _TEXTS:
        return field.parts[-1]
    if field.types == [gguf.GGUFValueType.FLOAT32]:
        # The shortest decimal number that float32 rounds so: 1e-05, and not 9.999999747378752e-06.
        return float(str(field.parts[-1][0]))
    return field.contents()
