"""The registry of methods: each entry of the catalogue (`settings.methods`) with its code from this folder."""

from collections.abc import Sequence

from knnprompt_jax import errors
from knnprompt_jax.methods import (
    auto,
    baselines,
    calibrations,
    demonstrations,
    hidden_states,
    in_context,
    knn,
    method,
    noisy_channel,
)
from knnprompt_jax.settings import methods

_MODULES = (
    in_context,
    knn,
    demonstrations,
    noisy_channel,
    auto,
    baselines,
    calibrations,
    hidden_states,
)
_DECLARED = {declared.name: declared for module in _MODULES for declared in module.METHODS}
METHODS: dict[str, method.Method] = {name: _DECLARED[name] for name in methods.CATALOGUE}
"""Every method by name, in the order of the catalogue."""


def get(name: str) -> method.Method:
    """Return the method of this name; raise UserError with the choices if it does not exist."""
    methods.check(name)
    return METHODS[name]


def select(
    names: Sequence[str], problem: method.Problem, settings: methods.MethodOptions
) -> tuple[list[method.Method], dict[str, str]]:
    """Return the methods of these names, without duplicates, and an empty dictionary.

    For ("all",), return those that "all" includes and that apply to the problem, and why each other method is excluded.

    Raises:
        UserError: no name, an unknown name, or a method that does not apply to the problem with its options.
    """
    if not names:
        raise errors.UserError(f"no method: choose from {', '.join(METHODS)}, or {methods.ALL}")
    if tuple(names) == (methods.ALL,):
        return _select_all(problem, settings)
    selected = [get(name) for name in dict.fromkeys(names)]
    for declared in selected:
        if reason := declared.obstacle(problem, declared.options(settings)):
            applicable = ", ".join(fitting.name for fitting in _select_all(problem, settings)[0])
            raise errors.UserError(
                f"method {declared.name!r} does not apply: {reason}; methods of {methods.ALL!r} that do: {applicable}"
            )
    return selected, {}


def _select_all(problem: method.Problem, settings: methods.MethodOptions) -> tuple[list[method.Method], dict[str, str]]:
    """Return the methods that "all" includes and that apply to a problem, and why each other method is excluded."""
    selected = []
    reasons = {}
    for name, declared in METHODS.items():
        reason = declared.entry.excluded_because or declared.obstacle(problem, declared.options(settings))
        if reason:
            reasons[name] = reason
        else:
            selected.append(declared)
    return selected, reasons
