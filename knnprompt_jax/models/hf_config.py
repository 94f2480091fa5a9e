"""Reading a Hugging Face config.json: its values, checked one by one."""

import json
import pathlib
from collections.abc import Collection
from typing import Any

from knnprompt_jax import errors

Json = dict[str, Any]


def read(folder: pathlib.Path) -> Json:
    """The contents of the folder's config.json.

    Raises:
        UserError: the file is missing or holds no JSON object.
    """
    if not (folder / "config.json").exists():
        raise errors.UserError(f"{folder}: no config.json; a model folder holds config.json and its weights")
    return read_object(folder / "config.json")


def read_object(path: pathlib.Path) -> Json:
    """The JSON object in a file.

    Raises:
        UserError: the file cannot be read or holds no JSON object.
    """
    try:
        hf = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise errors.UserError(f"{path}: not readable as JSON: {error}") from None
    if not isinstance(hf, dict):
        raise errors.UserError(f"{path}: holds no JSON object")
    return hf


def size(hf: Json, key: str, default: int) -> int:
    """A positive whole number; null counts as absent."""
    value = _get(hf, key, default)
    if type(value) is not int or value < 1:
        raise errors.UserError(f"config.json: {key}={value!r} is not a positive whole number")
    return value


def divisor(hf: Json, key: str, default: int, total: int) -> int:
    """A positive whole number that divides `total`."""
    value = size(hf, key, default)
    if total % value:
        raise errors.UserError(f"config.json: {key}={value} does not divide the width {total}")
    return value


def number(hf: Json, key: str, default: float) -> float:
    """A positive number."""
    value = _get(hf, key, default)
    if type(value) not in (int, float) or not value > 0:
        raise errors.UserError(f"config.json: {key}={value!r} is not a positive number")
    return float(value)


def switch(hf: Json, key: str, default: bool) -> bool:
    value = _get(hf, key, default)
    if type(value) is not bool:
        raise errors.UserError(f"config.json: {key}={value!r} is neither true nor false")
    return value


def choice(hf: Json, key: str, default: str, choices: Collection[str]) -> str:
    value = _get(hf, key, default)
    if not isinstance(value, str) or value not in choices:
        raise errors.UserError(f"config.json: {key}={value!r} is not supported; choices: {', '.join(sorted(choices))}")
    return value


def require(hf: Json, key: str, supported: bool) -> None:
    """Refuses a switch whose other setting gives a model that is not supported; the supported one is the default."""
    if switch(hf, key, supported) is not supported:
        raise errors.UserError(f"config.json: {key}={not supported} is not supported; only {key}={supported} is")


def _get(hf: Json, key: str, default: Any) -> Any:
    value = hf.get(key)
    return default if value is None else value
