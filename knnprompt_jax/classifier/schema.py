"""JSON of dataclasses: their type hints are the schema, and JSON that does not match it is refused."""

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, NoReturn


def dumps(value: Any) -> str:
    """Return the JSON of a dataclass, in ASCII; NumPy values become Python values."""
    return json.dumps(dataclasses.asdict(value), allow_nan=False, default=_to_python)


def parse(text: str | bytes) -> Any:
    """Parse JSON; raise ValueError on a duplicate member or NaN, and RecursionError on deep nesting."""
    return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)


def decode(hint: Any, value: Any, where: str = "classifier") -> Any:
    """Return a JSON value as a value of this type.

    Args:
        where: the name of the value in errors.

    Raises:
        ValueError: a missing or unknown member, or a value of another type.
        UserError: a value that the dataclass refuses.
    """
    if hint is Any:
        return value
    if dataclasses.is_dataclass(hint):
        return _decode_dataclass(hint, value, where)
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if origin is types.UnionType:
        return _decode_union(arguments, value, where)
    if origin is tuple:
        items = _expect(list, value, where)
        return tuple(decode(arguments[0], item, f"{where}[{index}]") for index, item in enumerate(items))
    if origin is Mapping:
        members = _expect(dict, value, where)
        return {name: decode(arguments[1], item, f"{where}.{name}") for name, item in members.items()}
    if hint is float and type(value) is int:
        value = float(value)
    value = _expect(hint, value, where)
    if hint is float and not math.isfinite(value):
        raise ValueError(f"{where} is not finite")
    return value


def _decode_dataclass(kind: Any, value: Any, where: str) -> Any:
    members = _expect(dict, value, where)
    names = [field.name for field in dataclasses.fields(kind)]
    if members.keys() != set(names):
        wrong = sorted(members.keys() ^ set(names))[0]
        raise ValueError(f"{where}: {'unknown' if wrong in members else 'missing'} member {wrong!r}")
    hints = typing.get_type_hints(kind)
    words = {field.name: field.metadata.get("words", {}) for field in dataclasses.fields(kind)}
    values = {}
    for name in names:
        item = members[name]
        is_word = isinstance(item, str) and item in words[name]  # A special value of an option, such as "auto".
        values[name] = item if is_word else decode(hints[name], item, f"{where}.{name}")
    return kind(**values)


def _decode_union(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    """Return the value as one of these types; a union has at most one dataclass, which stands first."""
    if value is None and type(None) in kinds:
        return None
    kind = type(value) if type(value) in kinds else kinds[0]
    return decode(kind, value, where)


def _expect(kind: type, value: Any, where: str) -> Any:
    """Return the value if it has exactly this type."""
    if type(value) is not kind:
        raise ValueError(f"{where}: {kind.__name__} expected, not {type(value).__name__}")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a duplicate member")
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _to_python(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
