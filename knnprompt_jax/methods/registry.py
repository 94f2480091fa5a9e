"""The methods by name. Adding one is a file that ends in its `METHODS`, and its name here."""

from collections.abc import Mapping, Sequence
from typing import Any

from knnprompt_jax import errors
from knnprompt_jax.methods import (
    batch_calibration,
    commonest_class,
    contextual_calibration,
    demonstration_selection,
    demonstration_upper_bound,
    domain_context_calibration,
    hidden_centroids,
    icl_ensemble,
    linc,
    linear_probe,
    method,
    multi_token_icl,
    noisy_channel,
    proca,
    tfidf,
    variants,
)
from knnprompt_jax.methods.fine_tuning import method as fine_tuning

ALL = "all"
_MODULES = (
    variants,
    multi_token_icl,
    icl_ensemble,
    contextual_calibration,
    noisy_channel,
    demonstration_selection,
    demonstration_upper_bound,
    fine_tuning,
    commonest_class,
    tfidf,
    domain_context_calibration,
    batch_calibration,
    proca,
    linc,
    hidden_centroids,
    linear_probe,
)
METHODS: dict[str, method.Method] = {declared.name: declared for module in _MODULES for declared in module.METHODS}


def get(name: str) -> method.Method:
    """The method of that name; raises UserError with the choices where there is none."""
    if name not in METHODS:
        raise errors.UserError(f"unknown method {name!r}: choose from {', '.join(METHODS)}, or {ALL}")
    return METHODS[name]


def select(names: Sequence[str], problem: method.Problem) -> tuple[list[method.Method], dict[str, str]]:
    """The methods of these names, each once; of ("all",) those that apply, and why each of the others does not.

    Raises:
        UserError: no name, an unknown one, or one whose method does not apply to the problem, with those that do.
    """
    if not names:
        raise errors.UserError(f"no method: choose from {', '.join(METHODS)}, or {ALL}")
    if tuple(names) == (ALL,):
        reasons = {name: reason for name, one in METHODS.items() if (reason := one.by_name or _obstacle(one, problem))}
        return [METHODS[name] for name in METHODS if name not in reasons], reasons
    chosen = [get(name) for name in dict.fromkeys(names)]
    for one in chosen:
        if reason := _obstacle(one, problem):
            fitting = [name for name in METHODS if not _obstacle(METHODS[name], problem)]
            raise errors.UserError(
                f"method {one.name!r} does not apply: {reason}; methods that do: {', '.join(fitting)}"
            )
    return chosen, {}


def default_options() -> dict[str, dict[str, Any]]:
    """The options of every method with their defaults, by its name."""
    return {name: dict(one.options) for name, one in METHODS.items()}


def with_options(one: method.Method, given: Mapping[str, Any]) -> dict[str, Any]:
    """The method's options, with those given in the place of the defaults; raises UserError on one it does not have."""
    for name in given:
        if name not in one.options:
            raise errors.UserError(
                f"method {one.name!r} has no option {name!r}: choose from {', '.join(one.options) or 'none'}"
            )
    return {**one.options, **given}


def _obstacle(one: method.Method, problem: method.Problem) -> str:
    """Why a method does not apply to a problem; empty where it does."""
    if method.anchors in one.needs and not problem.split.anchors:
        return "there are no anchors: choose more shots"
    try:
        one.check(problem)
    except errors.UserError as error:
        return str(error)
    return ""
