"""The methods by name. Adding a method is a file that ends in its `METHODS`, and the file's name in `_FILES`."""

import dataclasses
import functools
import importlib
from collections.abc import Sequence

from knnprompt_jax import errors, options
from knnprompt_jax.methods import method

ALL = "all"
_FILES = (
    *("in_context", "knn", "multi_token_icl", "icl_ensemble", "contextual_calibration", "noisy_channel"),
    *("demonstration_selection", "demonstration_upper_bound", "fine_tuning.method", "commonest_class", "tfidf"),
    *("many_shot", "chosen_layer", "chosen"),
    *("domain_context_calibration", "batch_calibration", "proca", "linc", "supervised_calibration"),
    *("hidden_centroids", "linear_probe"),
)
_MODULES = [importlib.import_module(f"knnprompt_jax.methods.{name}") for name in _FILES]
METHODS: dict[str, method.Method] = {declared.name: declared for module in _MODULES for declared in module.METHODS}


def get(name: str) -> method.Method:
    """The method of that name; raises UserError with the choices where there is none."""
    if name not in METHODS:
        raise errors.UserError(f"unknown method {name!r}: choose from {', '.join(METHODS)}, or {ALL}")
    return METHODS[name]


def select(names: Sequence[str], problem: method.Problem) -> tuple[list[method.Method], dict[str, str]]:
    """The methods of these names, each once; of ("all",) those that apply, and why each of the others does not.

    Raises:
        UserError: no name, an unknown name, or a method that does not apply to the problem, with those that do.
    """
    if not names:
        raise errors.UserError(f"no method: choose from {', '.join(METHODS)}, or {ALL}")
    if tuple(names) == (ALL,):
        reasons = {name: reason for name in METHODS if (reason := METHODS[name].by_name or _obstacle(name, problem))}
        return [METHODS[name] for name in METHODS if name not in reasons], reasons
    chosen = [get(name) for name in dict.fromkeys(names)]
    for each in chosen:
        if reason := _obstacle(each.name, problem):
            fitting = [name for name in METHODS if not _obstacle(name, problem)]
            raise errors.UserError(
                f"method {each.name!r} does not apply: {reason}; methods that do: {', '.join(fitting)}"
            )
    return chosen, {}


@functools.cache
def options_kind() -> type[options.Options]:
    """The declaration of all methods' options, a group for each method by its name."""
    fields = [(name, each.settings, options.group(each.settings)) for name, each in METHODS.items()]
    return dataclasses.make_dataclass("MethodOptions", fields, bases=(options.Options,), frozen=True)


def _obstacle(name: str, problem: method.Problem) -> str:
    """Why a method does not apply to a problem; empty where it does."""
    if method.anchors in METHODS[name].needs and not problem.split.anchors:
        return "there are no anchors: choose more shots"
    try:
        METHODS[name].check(problem)
    except errors.UserError as error:
        return str(error)
    return ""
