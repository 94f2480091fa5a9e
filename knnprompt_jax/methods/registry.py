"""The registry of methods: each entry of the catalogue (`settings.methods`) with its code from the files below."""

import importlib
from collections.abc import Sequence

from knnprompt_jax import errors
from knnprompt_jax.methods import method
from knnprompt_jax.settings import methods

_FILES = (
    *("in_context", "knn", "demonstrations", "noisy_channel", "fine_tuning"),
    *("baselines", "calibrations", "hidden_states"),
)
_MODULES = [importlib.import_module(f"knnprompt_jax.methods.{name}") for name in _FILES]
_DECLARED = {declared.name: declared for module in _MODULES for declared in module.METHODS}
METHODS: dict[str, method.Method] = {name: _DECLARED[name] for name in methods.CATALOGUE}  # In its order.


def get(name: str) -> method.Method:
    """Return the method of this name; raises UserError with the choices if it does not exist."""
    methods.check(name)
    return METHODS[name]


def select(
    names: Sequence[str], problem: method.Problem, settings: methods.MethodOptions
) -> tuple[list[method.Method], dict[str, str]]:
    """Return the methods of these names, without duplicates; for ("all",), those that apply and why each other does not.

    Raises:
        UserError: no name, an unknown name, or a method that does not apply to the problem with its options.
    """
    if not names:
        raise errors.UserError(f"no method: choose from {', '.join(METHODS)}, or {methods.ALL}")
    if tuple(names) == (methods.ALL,):
        return _select_all(problem, settings)
    selected = [get(name) for name in dict.fromkeys(names)]
    for one in selected:
        if reason := one.obstacle(problem, one.options(settings)):
            applicable = ", ".join(other.name for other in _select_all(problem, settings)[0])
            raise errors.UserError(f"method {one.name!r} does not apply: {reason}; methods that do: {applicable}")
    return selected, {}


def _select_all(problem: method.Problem, settings: methods.MethodOptions) -> tuple[list[method.Method], dict[str, str]]:
    """Return the methods that "all" includes and that apply to a problem, and why each other is left out."""
    selected = []
    reasons = {}
    for name, one in METHODS.items():
        reason = one.entry.excluded_because or one.obstacle(problem, one.options(settings))
        if reason:
            reasons[name] = reason
        else:
            selected.append(one)
    return selected, reasons
