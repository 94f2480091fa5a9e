"""Options, each declared once: a field of a dataclass with its default, help text, choices and limits.

Flags, `--help`, checks and records are all made from these declarations. The option `group.name` is the field `name` of
the dataclass in the field `group`.
"""

import contextlib
import dataclasses
import math
import numbers
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar

from knnprompt_jax import errors

T = TypeVar("T")
LARGEST = {int: 2**31 - 1, float: 1e12}  # NumPy and JAX take seeds and sizes up to here.
_NOT_UTF_8 = re.compile("[\0\ud800-\udfff]")  # No file name and no UTF-8 text contains these characters.
_KINDS = {int: "a whole number", float: "a finite number", str: "text", bool: "True or False"}
_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


def option(
    default: Any,
    help: str,
    *,
    choices: Collection[str] = (),
    least: float | None = None,
    most: float | None = None,
    nonempty: bool = False,
    words: Mapping[str, Any] = types.MappingProxyType({}),
    check: Callable[[str], Any] | None = None,
) -> Any:
    """Declare a field as an option.

    Args:
        default: the value of an option that is not given; None is always allowed if it is the default.
        help: the text that `--help` prints.
        choices: the texts that are allowed; any if there are none.
        least: the smallest number allowed, also in a tuple. No number is smaller than -`LARGEST`.
        most: the largest number allowed, also in a tuple. No number is larger than `LARGEST`.
        nonempty: whether an empty value is refused.
        words: special values by word, such as {"all": 0}; the limits do not apply to them.
        check: raises UserError if a value names a file, folder, model or task that cannot be used (`check_names`).
    """
    declared: dict[str, Any] = {"help": help, "choices": tuple(choices), "least": least, "most": most}
    declared |= {"nonempty": nonempty, "words": words, "check": check}
    return dataclasses.field(default=default, metadata=declared)


def argument(default: Any, help: str) -> Any:
    """Declare a field that is an argument in Python and no flag; its value is not checked here."""
    return dataclasses.field(default=default, metadata={"argument": help})


def group(kind: type) -> Any:
    """Declare a field that holds the options of another dataclass."""
    return dataclasses.field(default_factory=kind, metadata={"group": kind})


@typing.dataclass_transform(frozen_default=True)
@dataclasses.dataclass(frozen=True)
class Options:
    """A set of options, checked when it is created. NumPy numbers become Python numbers, and lists become tuples.

    Each subclass is a frozen dataclass; it needs no decorator.

    Raises:
        UserError: a value of the wrong type, not among the choices, beyond the limits, or empty although `nonempty`.
    """

    FURTHER: ClassVar[tuple[str, ...]] = ()  # Options and groups that only `--helpfull` lists.

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(frozen=True)(cls)

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for field in dataclasses.fields(self):
            if "help" in field.metadata:
                value = _checked(field.name, field, hints[field.name], getattr(self, field.name))
                object.__setattr__(self, field.name, value)

    def check_names(self) -> None:
        """Raise UserError if an option names a file, folder, model or task that cannot be used.

        Binaries call this before they import anything slow.
        """
        for field in dataclasses.fields(self):
            check: Any = field.metadata.get("check")
            value = getattr(self, field.name)
            names = value if isinstance(value, tuple) else (value,)
            for name in filter(None, names if check else ()):
                check(name)

    @property
    def prints(self) -> bool:
        """Whether the binary prints its result, so that standard output must be open."""
        return True

    def refuse(self, names: Iterable[str], why: str) -> None:
        """Raise UserError on the first of these options that has another value than its default."""
        fields = {field.name: field for field in dataclasses.fields(self)}
        for name in names:
            group = fields[name].metadata.get("group")
            if getattr(self, name) != (group() if group else fields[name].default):
                raise errors.UserError(f"--{name}: has no effect {why}; leave it out")

    @classmethod
    def groups(cls) -> dict[str, type["Options"]]:
        """Return the class of the options in each group."""
        return {field.name: field.metadata["group"] for field in dataclasses.fields(cls) if "group" in field.metadata}

    def to_dict(self) -> dict[str, Any]:
        """Return the values by name, with a dictionary for each group."""
        return dataclasses.asdict(self)


def described(kind: type) -> str:
    """Return the options and arguments of a class as the section "Args:" of a docstring."""
    lines = []
    for field in dataclasses.fields(kind):
        choices = f" One of {', '.join(map(repr, chosen))}." if (chosen := field.metadata.get("choices")) else ""
        text = field.metadata.get("help") or field.metadata["argument"]
        lines.append(f"  {field.name}: {text}{choices} By default {field.default!r}.")
    return "\n".join(["Args:", *lines])


def declarations(kind: type, prefix: str = "") -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    """Yield the name, default and declaration of each option: own options, then inherited ones, then groups.

    The heading of an option describes its group, or else the class that declares it.
    """

    def rank(field: dataclasses.Field) -> int:
        """Return the position among the ancestors of the class that declares a field."""
        return [field.name in vars(ancestor).get("__annotations__", {}) for ancestor in kind.__mro__].index(True)

    for field in sorted(dataclasses.fields(kind), key=lambda field: ("group" in field.metadata, rank(field))):
        if inner := field.metadata.get("group"):
            for name, default, declared in declarations(inner, f"{prefix}{field.name}."):
                yield name, default, {**declared, "heading": _heading(inner)}
        elif "help" in field.metadata:
            is_boolean = field.type is bool or bool in typing.get_args(field.type)
            heading = _heading(kind.__mro__[rank(field)])
            yield prefix + field.name, field.default, {**field.metadata, "is_boolean": is_boolean, "heading": heading}


def _heading(kind: type) -> str:
    """Return the first sentence of the docstring, without its period."""
    return (kind.__doc__ or "").partition("\n")[0].partition(". ")[0].removesuffix(".")


def flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return values that may be nested by group as one dictionary, with names such as `group.name`."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= flattened(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def to_flags(given: Options) -> list[str]:
    """Return the options that differ from their defaults as flags: `--name=value`, `--name` for True."""
    values = flattened(given.to_dict())
    flags = []
    for name, default, _ in declarations(type(given)):
        value = values[name]
        if value is True and not default:
            flags.append(f"--{name}")
        elif value != default:
            text = ",".join(map(str, value)) if isinstance(value, tuple) else value
            flags.append(f"--{name}={text}")
    return flags


def from_config(kind: type[T], config: Mapping[str, Any], prefix: str = "") -> T:
    """Create the options of a class from values by name.

    Args:
        kind: the class of the options.
        config: values by name; a group is a mapping, or its options are named `group.name`.
        prefix: what precedes each name in a message; "--" if the values are flags.

    Raises:
        UserError: an option is unknown, or its value is not allowed.
    """
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]  # A dataclass.
    hints = typing.get_type_hints(kind)
    # Checked here too, so that a missing value is refused by the name of its flag.
    required = {name: field.default for name, field in fields.items() if field.metadata.get("nonempty")}
    values: dict[str, Any] = {}
    groups: dict[str, dict[str, Any]] = {}
    for name, value in {**required, **flattened(config)}.items():
        first, _, rest = name.partition(".")
        is_group = first in fields and "group" in fields[first].metadata
        if first not in fields or rest and not is_group:
            choices = ", ".join(prefix + field for field in sorted(fields))
            raise errors.UserError(f"unknown option {f'{prefix}{name}'!r}: choose from {choices}")
        if not is_group:
            values[name] = _checked(prefix + name, fields[name], hints[name], value)
        elif rest:
            groups.setdefault(first, {})[rest] = value
        else:
            raise errors.UserError(f"{_assignment(prefix + name, value)}: it is a group of options")
    for name, members in groups.items():
        values[name] = from_config(fields[name].metadata["group"], members, f"{prefix}{name}.")
    return kind(**values)


def _checked(name: str, field: dataclasses.Field, hint: Any, value: Any) -> Any:
    """Return the value as a Python value of the option's type; a text is parsed.

    The value of a word is allowed too: options that are made from other options hold it.

    Raises:
        UserError: the declaration does not allow the value.
    """
    declared = field.metadata
    assignment = _assignment(name, value)
    hint = typing.get_args(hint)[0] if type(None) in typing.get_args(hint) else hint
    is_tuple = typing.get_origin(hint) is tuple
    kind = typing.get_args(hint)[0] if is_tuple else hint
    if value is None and field.default is None:
        return None
    if isinstance(value, str) and value in declared["words"]:
        return declared["words"][value]
    if _is(kind, value) and value in declared["words"].values():
        return value
    if isinstance(value, str):
        texts = [part.strip() for part in value.split(",") if part.strip()]
        value = tuple(_parsed(text, kind) for text in texts) if is_tuple else _parsed(value, kind)
    if is_tuple and not isinstance(value, list | tuple):
        raise errors.UserError(f"{assignment}: give several values, for example {name}=(1, 2)")
    if declared["nonempty"] and isinstance(value, str | list | tuple) and not value:
        if field.default in ("", ()):
            raise errors.UserError(f"{name} is required: {declared['help']}")
        raise errors.UserError(f"{assignment}: give {'at least one value' if is_tuple else 'a value'}")
    for item in value if is_tuple else (value,):
        if declared["choices"] and not (isinstance(item, str) and item in declared["choices"]):
            raise errors.UserError(f"{assignment}: choose from {', '.join(declared['choices'])}")
        if not _is(kind, item):
            limits = "" if declared["most"] is None else f" from {declared['least']} to {declared['most']}"
            kinds = [_KINDS[kind] + limits, *declared["words"]]
            raise errors.UserError(f"{assignment}: {'each' if is_tuple else 'it'} must be {' or '.join(kinds)}")
        if kind is str and _NOT_UTF_8.search(item):
            raise errors.UserError(f"{assignment}: it must be UTF-8 text without NUL characters")
        if kind in LARGEST:
            least = -LARGEST[kind] if declared["least"] is None else declared["least"]
            most = LARGEST[kind] if declared["most"] is None else declared["most"]
            if item < least:
                raise errors.UserError(f"{assignment}: at least {least} is required")
            if item > most:
                raise errors.UserError(f"{assignment}: at most {most} is allowed")
    return tuple(kind(item) for item in value) if is_tuple else kind(value)


def _is(kind: type, value: Any) -> bool:
    """Return whether a value counts as one of this type; a bool is no number, and a number is finite."""
    if isinstance(value, bool):
        return kind is bool
    if kind is float:  # NaN is not equal to itself.
        return isinstance(value, numbers.Real) and value == value and value not in (math.inf, -math.inf)
    return isinstance(value, numbers.Integral if kind is int else kind)


def _parsed(text: str, kind: type) -> Any:
    """Convert a text from the command line; return it unchanged if it is no value of this type."""
    if kind is bool:
        return _BOOLEANS.get(text.lower(), text)
    with contextlib.suppress(ValueError):
        return kind(text)
    return text


def _assignment(name: str, value: Any) -> str:
    """Return `name=value` for a message; a flag is shown as it was typed."""
    if name.startswith("--") and isinstance(value, str) and value.isprintable():
        return f"{name}={value}"
    return f"{name}={' '.join(repr(value).splitlines())}"
