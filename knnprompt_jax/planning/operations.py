"""How many floating-point operations a program's matrix products take, as it is written: padding and masked pairs included."""

import math
from typing import Any

from jax.extend import core

from knnprompt_jax import parallel


def count(jaxpr: Any) -> int:
    """Of one device's share where a `shard_map` says what that is; a multiplication and an addition are two, of a conditional the
    branch with most of them counts, and a loop as often as it runs."""
    total = 0
    for equation in jaxpr.eqns:
        inner = [count(each) for each in core.jaxprs_in_params(equation.params)]
        if equation.primitive.name == "dot_general":
            total += _of_product(equation)
        elif equation.primitive.name == "pallas_call":
            total += equation.params["cost_estimate"].flops
        elif equation.primitive.name == "cond":
            total += max(inner)
        else:
            total += sum(inner) * _times(equation)
    return total


def _times(equation: Any) -> int:
    """How often what is within an equation is done."""
    if equation.primitive.name == "scan":
        return equation.params["length"]
    if equation.primitive.name == "shard_map" and set(equation.params["newly_manual_axes"]) == {parallel.MODEL}:
        return equation.params["mesh"].shape[parallel.MODEL]  # All shards count there, as they do around it.
    return 1


def _of_product(equation: Any) -> int:
    (contracted, _), _ = equation.params["dimension_numbers"]
    left = equation.invars[0].aval.shape
    return 2 * math.prod(equation.outvars[0].aval.shape) * math.prod(left[axis] for axis in contracted)
