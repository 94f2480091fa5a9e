"""All methods by name. A method is an object in a file of this folder, which `_FILES` names."""

import importlib
from collections.abc import Sequence
from typing import Any

from knnprompt_jax.common import errors, options
from knnprompt_jax.methods import method

ALL = "all"
_FILES = ["in_context", "knn", "auto", "demonstrations", "noisy_channel", "baselines", "calibrations", "hidden_states"]
METHODS: dict[str, method.Method] = {
    declared.name: declared
    for file in _FILES
    for declared in importlib.import_module(f"knnprompt_jax.methods.{file}").METHODS
}
"""Every method by name, in the order of tables."""

_KINDS = {declared.name: declared.options_kind for declared in METHODS.values() if not declared.variant_of}
# Options of each method but variants: `--knn.k=5` sets an option of `knn` and of its variants.
MethodOptions: Any = type(
    "MethodOptions",
    (options.Options,),
    {"__annotations__": _KINDS, **{name: options.group(kind) for name, kind in _KINDS.items()}},
)


def get(name: str) -> method.Method:
    """Return the method of this name; raise UserError with the choices if there is none."""
    if name not in METHODS:
        raise errors.UserError(f"unknown method {name!r}: choose from {', '.join(METHODS)} (in compare also {ALL})")
    return METHODS[name]


def select(names: Sequence[str], problem: method.Problem, settings: Any) -> tuple[list[method.Method], dict[str, str]]:
    """Return the methods of these names, without duplicates, and an empty dictionary.

    For ("all",), return those that "all" includes and that apply to the problem, and why each other method is excluded.

    Args:
        names: names of methods, or ("all",).
        problem: the problem to solve.
        settings: the options of all methods, `MethodOptions`.

    Raises:
        UserError: an unknown name, or a method that does not apply to the problem with its options.
    """
    is_all = tuple(names) == (ALL,)
    requested = [*METHODS.values()] if is_all else [get(name) for name in dict.fromkeys(names)]
    reasons = {}
    for declared in requested:
        excluded = declared.excluded_because if is_all else ""
        if reason := excluded or declared.obstacle(problem, declared.options(settings)):
            reasons[declared.name] = reason
    if reasons and not is_all:
        raise errors.UserError("; ".join(f"method {name!r} does not apply: {why}" for name, why in reasons.items()))
    return [declared for declared in requested if declared.name not in reasons], reasons
