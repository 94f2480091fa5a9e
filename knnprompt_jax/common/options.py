"""Options, each declared once: a field of a dataclass with its default, help text, choices and limits.

Flags, `--help`, checks and records are all made from these declarations. The option `group.name` is the field `name` of
the dataclass in the field `group`.
"""

import contextlib
import dataclasses
import numbers
import re
import types
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar

from knnprompt_jax.common import errors, files

T = TypeVar("T")
_LARGEST = 2**31 - 1  # NumPy and JAX take seeds and sizes up to here.
_NOT_UTF_8 = re.compile("[\0\ud800-\udfff]")  # No file name and no UTF-8 text contains these characters.
_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


def option(
    default: Any,
    help: str,
    *,
    choices: Collection[str] = (),
    least: float = -_LARGEST,
    most: float = _LARGEST,
    nonempty: bool = False,
    verbatim: bool = False,
    words: Mapping[str, Any] = types.MappingProxyType({}),
) -> Any:
    """Declare a field as an option.

    Args:
        default: the value of an option that is not given; None is always allowed if it is the default.
        help: the text that `--help` prints.
        choices: the texts that are allowed; any if there are none.
        least: the smallest number allowed, also in a tuple.
        most: the largest number allowed, also in a tuple.
        nonempty: whether an empty value is refused.
        verbatim: whether a `~` at the beginning of a text stays; otherwise it is the home folder, as in a shell.
        words: special values by word, such as {"all": 0}; the limits do not apply to them.
    """
    declared: dict[str, Any] = {"help": help, "choices": tuple(choices), "least": least, "most": most}
    declared |= {"nonempty": nonempty, "verbatim": verbatim, "words": words}
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
    """A set of options, checked when it is created. Texts are parsed, NumPy numbers and lists become Python's own.

    Each subclass is a frozen dataclass; it needs no decorator.

    Raises:
        UserError: a value that the declaration does not allow.
    """

    FURTHER: ClassVar[tuple[str, ...]] = ()  # Options and groups that only `--helpfull` lists.

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(frozen=True)(cls)

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for field in dataclasses.fields(self):
            if "help" in field.metadata:
                value = _checked(field, hints[field.name], getattr(self, field.name))
                object.__setattr__(self, field.name, value)

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
    """Yield the name, default and declaration of each option; those of groups come last."""
    for field in sorted(dataclasses.fields(kind), key=lambda field: "group" in field.metadata):
        if "group" in field.metadata:
            yield from declarations(field.metadata["group"], f"{prefix}{field.name}.")
        elif "help" in field.metadata:
            is_boolean = field.type is bool or bool in typing.get_args(field.type)
            yield prefix + field.name, field.default, {**field.metadata, "is_boolean": is_boolean}


def flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return values that may be nested by group as one dictionary, with names such as `group.name`."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= flattened(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def from_config(kind: type[T], config: Mapping[str, Any]) -> T:
    """Create the options of a class from values by name; a group is a mapping, or its options are named `group.name`.

    Raises:
        UserError: an option is unknown, or its value is not allowed.
    """
    values = flattened(config)
    names = sorted(name for name, _, _ in declarations(kind))
    for name in values:
        if name not in names:
            near = [other for other in names if other.rpartition(".")[0] == name.rpartition(".")[0]]
            raise errors.UserError(f"{name}: no such option; choose from {errors.join_names(near or names)}")
    return _create(kind, values, "")


def _create(kind: Any, values: Mapping[str, Any], prefix: str) -> Any:
    """Create the options of a class from the values whose names begin with `prefix`."""
    given = {}
    for field in dataclasses.fields(kind):
        name = prefix + field.name
        if "group" in field.metadata:
            given[field.name] = _create(field.metadata["group"], values, f"{name}.")
        elif name in values:
            given[field.name] = values[name]
    try:
        return kind(**given)
    except errors.UserError as error:
        raise errors.UserError(f"{prefix}{error}") from error


def _checked(field: dataclasses.Field, hint: Any, value: Any) -> Any:
    """Return the value as a Python value of the option's type; a text is parsed.

    The value of a word is allowed too: options that are made from other options hold it.

    Raises:
        UserError: the declaration does not allow the value.
    """
    declared = field.metadata
    hint = typing.get_args(hint)[0] if type(None) in typing.get_args(hint) else hint
    is_tuple = typing.get_origin(hint) is tuple
    kind = typing.get_args(hint)[0] if is_tuple else hint
    if value is None and field.default is None:
        return None
    if isinstance(value, str) and value in declared["words"]:
        return declared["words"][value]
    if not isinstance(value, bool) and value in declared["words"].values():
        return value
    shown = value if isinstance(value, str) and value.isprintable() else " ".join(repr(value).splitlines())
    if is_tuple and isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if declared["nonempty"] and isinstance(value, str | list | tuple) and not value:
        raise errors.UserError(f"{field.name} is required: {declared['help']}")
    has_items = is_tuple and isinstance(value, list | tuple)
    items = [_parsed(item, kind) for item in (value if has_items else [value])]
    if has_items != is_tuple or not all(_is_allowed(kind, declared, item) for item in items):
        several = "for each value, " if is_tuple else ""
        raise errors.UserError(f"{field.name}={shown}: {several}{_describe_allowed(kind, declared)}")
    if kind is str and not declared["verbatim"]:
        items = list(map(files.expand_home, items))
    return tuple(map(kind, items)) if is_tuple else kind(items[0])


def _parsed(value: Any, kind: type) -> Any:
    """Convert a text from the command line; return it unchanged if it is no value of this type."""
    if not isinstance(value, str):
        return value
    if kind is bool:
        return _BOOLEANS.get(value.lower(), value)
    with contextlib.suppress(ValueError):
        return kind(value)
    return value


def _is_allowed(kind: type, declared: Mapping[str, Any], value: Any) -> bool:
    """Return whether a value has this type and is among the choices or within the limits; a bool is no number."""
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if kind is str:
        is_text = isinstance(value, str) and not _NOT_UTF_8.search(value)
        return is_text and (not declared["choices"] or value in declared["choices"])
    is_number: bool = isinstance(value, numbers.Integral if kind is int else numbers.Real)
    return is_number and declared["least"] <= value <= declared["most"]


def _describe_allowed(kind: type, declared: Mapping[str, Any]) -> str:
    """Return what a value, or each of several values, may be, for a message."""
    if declared["choices"]:
        return f"choose from {', '.join(declared['choices'])}"
    if kind is str:
        return "give UTF-8 text without NUL characters"
    if kind is bool:
        return "give True or False"
    limits = f"give a {'whole ' * (kind is int)}number from {declared['least']} to {declared['most']}"
    return " or ".join([limits, *declared["words"]])
