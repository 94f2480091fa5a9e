"""The registry of methods. To add a method, write a file that ends in `METHODS`, add the file to `_FILES`, and its
options to `settings.methods`.
"""

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
METHODS: dict[str, method.Method] = {name: _DECLARED[name] for name in methods.METHODS}  # In the order of the settings.


def get(name: str) -> method.Method:
    """Return the method of this name; raises UserError with the choices if it does not exist."""
    methods.check(name)
    return METHODS[name]


def select(names: Sequence[str], problem: method.Problem) -> tuple[list[method.Method], dict[str, str]]:
    """Return the methods of these names, without duplicates; for ("all",), those that apply and why each other does not.

    Raises:
        UserError: no name, an unknown name, or a method that does not apply to the problem.
    """
    if not names:
        raise errors.UserError(f"no method: choose from {', '.join(METHODS)}, or {methods.ALL}")
    if tuple(names) == (methods.ALL,):
        reasons = {
            name: reason
            for name in METHODS
            if (reason := METHODS[name].excluded_because or obstacle(METHODS[name], problem))
        }
        return [METHODS[name] for name in METHODS if name not in reasons], reasons
    selected = [get(name) for name in dict.fromkeys(names)]
    for declared in selected:
        if reason := obstacle(declared, problem):
            applicable = ", ".join(name for name, each in METHODS.items() if not obstacle(each, problem))
            raise errors.UserError(f"method {declared.name!r} does not apply: {reason}; methods that do: {applicable}")
    return selected, {}


def obstacle(declared: method.Method, problem: method.Problem) -> str:
    """Return why a method does not apply to a problem; empty if it applies."""
    if method.anchors in declared.needs and not problem.split.anchors:
        return "there are no anchors: choose more shots"
    try:
        declared.check(problem)
    except errors.UserError as error:
        return str(error)
    return ""
