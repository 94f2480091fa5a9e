"""Options, each declared once: a field of a dataclass with its default, help text, choices and limits.

Configs, `--help`, checks and records all come from these declarations. An option `group.name` is the field `name` of the
dataclass in the field `group`.
"""

import contextlib
import dataclasses
import functools
import math
import numbers
import operator
import re
import types
import typing
from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar

import ml_collections

from knnprompt_jax import errors

T = TypeVar("T")
LARGEST = {int: 2**31 - 1, float: 1e12}  # What NumPy and JAX take as seeds and sizes, and bytes can be counted with.
_SHOWN = 80  # Characters of a value in a message.
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")  # No file's name and no text in UTF-8 has these.
_KINDS = {int: "a whole number", float: "a number, and finite", str: "a text", bool: "True or False"}


def option(
    default: Any,
    help: str,
    *,
    choices: Collection[str] = (),
    least: float | None = None,
    most: float | None = None,
    needed: bool = False,
    decisive: bool = False,
    words: Mapping[str, Any] = types.MappingProxyType({}),
) -> Any:
    """A field that is an option; `least` and `most` bound a number, or each number of a tuple; what is `needed` is not empty. No number
    is beyond ± `LARGEST`. An outcome depends on what is `decisive`, beside the rows and the method's options.

    `words` may be given in the place of a value: each stands for one, which need not lie within the bounds. A default of None means
    "not given"; the field's type is then `X | None`.
    """
    declared = {"help": help, "choices": tuple(choices), "least": least, "most": most, "words": words}
    declared |= {"needed": needed, "decisive": decisive, "optional": default is None}
    return dataclasses.field(default=default, metadata=declared)


def group(kind: type) -> Any:
    """A field that holds the options of another dataclass."""
    return dataclasses.field(default_factory=kind, metadata={"group": kind})


@dataclasses.dataclass(frozen=True)
class Options:
    """Options with their values, checked when they are put together; NumPy's numbers become Python's, and lists tuples.

    Raises:
        UserError: a value of another type than the option's, outside its choices or limits, or missing.
    """

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for field in dataclasses.fields(self):
            if "help" in field.metadata:
                value = _checked(field.name, field.metadata, hints[field.name], getattr(self, field.name), again=True)
                object.__setattr__(self, field.name, value)

    def to_dict(self) -> dict[str, Any]:
        """The values by name, groups as dictionaries."""
        return dataclasses.asdict(self)


def listed(kind: type, prefix: str = "") -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    """Each option's name, default and declaration: the class's before those that it inherits, and those of groups last."""

    def place(field: dataclasses.Field) -> tuple[bool, int]:
        bases = [field.name in vars(base).get("__annotations__", {}) for base in kind.__mro__]
        return "group" in field.metadata, bases.index(True)

    for field in sorted(dataclasses.fields(kind), key=place):
        if inner := field.metadata.get("group"):
            yield from listed(inner, f"{prefix}{field.name}.")
        elif "help" in field.metadata:
            yield prefix + field.name, field.default, field.metadata


def decisive(settings: Options) -> dict[str, Any]:
    """The values, by name, on which an outcome depends."""
    return {name: operator.attrgetter(name)(settings) for name in _decisive_names(type(settings))}  # type: ignore[arg-type]  # Classes can be hashed.


@functools.cache
def _decisive_names(kind: type) -> tuple[str, ...]:
    return tuple(name for name, _, declared in listed(kind) if declared["decisive"])


def config_of(kind: type, **values: Any) -> ml_collections.ConfigDict:
    """The loose config of a dataclass: its defaults, or the values given in their place. `from_config` checks it."""
    config = ml_collections.ConfigDict(type_safe=False)
    for field in dataclasses.fields(kind):
        if inner := field.metadata.get("group"):
            config[field.name] = config_of(inner)
        elif "help" in field.metadata:
            config[field.name] = field.default
    config.update(values)
    return config


def from_config(kind: type[T], config: Mapping[str, Any], prefix: str = "") -> T:
    """The options of `kind` from a loose config; errors name an option with the `prefix` of its group.

    Raises:
        UserError: an option that there is not (with the choices), or a value that is refused.
    """
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]  # A dataclass.
    choices, hints = ", ".join(prefix + name for name in sorted(fields)), typing.get_type_hints(kind)
    if not hasattr(config, "items"):
        raise errors.UserError(f"{prefix.rstrip('.')}={shown(config)}: it is a group of options: choose from {choices}")
    values = {}
    for name, value in config.items():
        if name not in fields:
            raise errors.UserError(f"unknown option {f'{prefix}{name}'!r}: choose from {choices}")
        if inner := fields[name].metadata.get("group"):
            values[name] = from_config(inner, value, f"{prefix}{name}.")
        else:
            values[name] = _checked(prefix + name, fields[name].metadata, hints[name], value)
    return kind(**values)


def _checked(name: str, declared: Mapping[str, Any], hint: Any, value: Any, again: bool = False) -> Any:
    """The value in Python's types; raises UserError where the declaration does not allow it.

    `again` it may also be what a word stands for: options are also made of options.
    """
    if declared["optional"]:
        if value is None:
            return None
        hint = typing.get_args(hint)[0]
    several = typing.get_origin(hint) is tuple
    kind, told = typing.get_args(hint)[0] if several else hint, f"{name}={shown(value)}"
    if isinstance(value, str) and declared["words"]:
        if value in declared["words"]:
            return declared["words"][value]
        with contextlib.suppress(ValueError):  # A command line gives a text where the default is a word.
            value = kind(value)
    if again and _is(kind, value) and value in declared["words"].values():
        return value
    if several and not isinstance(value, list | tuple):
        raise errors.UserError(f"{told}: choose several, as in {name}=(1, 2)")
    values = tuple(value) if several else (value,)
    for each in values:
        _check(told, declared, kind, each, "each" if several else "it")
    converted = tuple(kind(each) for each in values)
    if declared["needed"] and not (converted if several else converted[0]):
        raise errors.UserError(f"{told}: it is needed: {declared['help']}")
    return converted if several else converted[0]


def _check(told: str, declared: Mapping[str, Any], kind: type, value: Any, which: str) -> None:
    if declared["choices"] and not (isinstance(value, str) and value in declared["choices"]):
        raise errors.UserError(f"{told}: choose from {', '.join(declared['choices'])}")
    if not _is(kind, value):
        raise errors.UserError(f"{told}: {which} must be {' or '.join([_KINDS[kind], *declared['words']])}")
    if isinstance(value, str) and _UNWRITABLE.search(value):
        raise errors.UserError(f"{told}: a text in UTF-8 without NUL characters is needed")
    if kind in LARGEST:
        least = -LARGEST[kind] if declared["least"] is None else declared["least"]
        most = LARGEST[kind] if declared["most"] is None else declared["most"]
        if value < least:
            raise errors.UserError(f"{told}: at least {least} is needed")
        if value > most:
            raise errors.UserError(f"{told}: at most {most} is possible")


def _is(kind: type, value: Any) -> bool:
    if isinstance(value, bool):
        return kind is bool
    if kind is float:
        try:
            return isinstance(value, numbers.Real) and math.isfinite(value)
        except OverflowError:  # A whole number that no float holds.
            return False
    return isinstance(value, numbers.Integral if kind is int else kind)


def shown(value: Any) -> str:
    """The value as messages show it: on one line, its middle left out where it is long."""
    try:
        text = " ".join(repr(value).splitlines())
    except ValueError:  # Python writes no whole numbers of more than 4,300 digits.
        return "a number of thousands of digits"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]}…{text[-_SHOWN // 4 :]}"
