"""A GGUF file's metadata, value by value, each checked for what it must be."""

import math
from typing import Any

import numpy as np

from knnprompt_jax import errors
from knnprompt_jax.models.gguf import header as gguf_header

# What the file says beside the model's shape; these change nothing of what it computes.
_HARMLESS = ("vocab_size", "tensor_data_layout", "rope.scaling.finetuned")


class Fields:
    """The values of one file under its architecture's prefix; `refuse_unread` names those that nobody read."""

    def __init__(self, header: gguf_header.Header):
        self.header = header
        self.arch = text(header, "general.architecture")
        self._read = {f"{self.arch}.{key}" for key in _HARMLESS}

    def value(self, key: str) -> Any:
        """The value, or None where the file has none."""
        self._read.add(f"{self.arch}.{key}")
        return self.header.metadata.get(f"{self.arch}.{key}")

    def size(self, key: str, default: int | None = None) -> int:
        """A positive whole number; without a default the file must have it."""
        value = self._value(key, default)
        if type(value) is not int or value < 1:
            raise self.wrong(key, f"{_shown(value)} is not a positive whole number")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A positive number; without a default the file must have it."""
        value = self._value(key, default)
        if type(value) not in (int, float) or not 0 < value < math.inf:
            raise self.wrong(key, f"{_shown(value)} is not a positive number")
        return float(value)

    def choice(self, key: str, default: str, choices: tuple[str, ...]) -> str:
        value = self._value(key, default)
        if value not in choices:
            raise self.wrong(key, f"{_shown(value)} is not supported; choices: {', '.join(choices)}")
        return value

    def switch(self, key: str, default: bool) -> bool:
        value = self._value(key, default)
        if type(value) is not bool:
            raise self.wrong(key, f"{_shown(value)} is neither true nor false")
        return value

    def wrong(self, key: str, reason: str) -> errors.UserError:
        return errors.UserError(f"{self.header.file}: {self.arch}.{key}: {reason}")

    def refuse_unread(self) -> None:
        """Refuses values under the architecture's prefix that were not asked for; 0, false and empty ones are no matter."""
        mine = {key: value for key, value in self.header.metadata.items() if key.startswith(f"{self.arch}.")}
        unread = [
            f"{key}={_shown(value)}" for key, value in mine.items() if key not in self._read and _says_something(value)
        ]
        if unread:
            raise errors.UserError(f"{self.header.file}: metadata that are not supported: {', '.join(unread)}")

    def _value(self, key: str, default: Any) -> Any:
        value = self.value(key)
        if value is None and default is None:
            raise errors.UserError(f"{self.header.file}: no metadata value {self.arch}.{key}")
        return default if value is None else value


def text(header: gguf_header.Header, key: str, default: str | None = None) -> str:
    """A text; without a default the file must have it."""
    value = header.metadata.get(key, default)
    if value is None:
        raise errors.UserError(f"{header.file}: no metadata value {key}")
    if not isinstance(value, str):
        raise errors.UserError(f"{header.file}: {key}: {_shown(value)} is no text")
    return value


def num_layers(fields: Fields) -> int:
    """The number of layers, checked against the layers that the tensors are of."""
    said = fields.size("block_count")
    names = [name.split(".") for name in fields.header.tensors]
    there = {parts[1] for parts in names if parts[0] == "blk" and len(parts) > 2}
    if len(there) != said:
        raise fields.wrong("block_count", f"{said} layers, and the tensors are of {len(there)}")
    return said


def _says_something(value: Any) -> bool:
    return bool(value.any() if isinstance(value, np.ndarray) else value)


def _shown(value: Any) -> str:
    shown = repr(value.tolist() if isinstance(value, np.ndarray) else value)
    return shown if len(shown) <= 60 else f"{shown[:60]}…"
