"""The attention kernel against XLA's attention: outputs on a random case, then states and time of a pass."""

import contextlib
import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterator, Sequence

import jax

from knnprompt_jax import states as states_lib
from knnprompt_jax.benchmark import timing
from knnprompt_jax.check import findings
from knnprompt_jax.check import inputs as inputs_lib
from knnprompt_jax.models import attention, kernel_proof

_REASON = "float32: rounding of products; bfloat16: two roundings to 8 bits (models/kernel_proof.py derives both)"
# Head sizes, query heads per key head, and whether there are windows: GPT-2's, Llama's and Gemma's.
_COMPILED = ((64, 1, False), (128, 4, False), (256, 4, True))
_INTERPRETED = ((16, 1, False), (24, 2, True))
_REPETITIONS = 3
_PASS = "states and time of a pass with the kernel"


def run(inputs: inputs_lib.Inputs) -> Iterator[findings.Finding]:
    """Compare the kernel with XLA's attention, outputs and then states; CPUs interpret the kernel of GPUs."""
    device = inputs.device.devices.flat[0]
    if device.platform not in attention.KERNEL_PLATFORMS:
        yield from _compare_outputs(_INTERPRETED, device, _deviation_interpreted)
        yield findings.Skipped(_PASS, f"{device.platform} has no compiled kernel")
        return
    if kernel_proof.switch() == kernel_proof.OFF:
        yield findings.Skipped("", f"{kernel_proof.SWITCH}=off")
        return
    yield from _compare_outputs(_COMPILED, device, _deviation_compiled)
    bounds = {
        "float32": (inputs_lib.NATS, inputs_lib.NATS_REASON),
        "bfloat16": (inputs_lib.HALF_NATS, inputs_lib.HALF_REASON),
    }
    for dtype, bound in bounds.items():
        measure = functools.partial(_deviation_of_states, inputs, dtype)
        yield findings.compare(f"states with the kernel against XLA's, {dtype}, nats", measure, *bound)
    yield findings.Facts(_seconds(inputs))


def _compare_outputs(
    kinds: Sequence[tuple[int, int, bool]],
    device: jax.Device,
    deviation_of: Callable[[jax.Device, kernel_proof.Case], float],
) -> Iterator[findings.Finding]:
    """Compare outputs on random arrays, a line for each kind of heads and dtype."""
    for kind, dtype in itertools.product(kinds, kernel_proof.TOLERANCE):
        head_size, heads_per_key, has_windows = kind
        case = kernel_proof.Case(device.platform, device.device_kind, dtype, head_size, heads_per_key, has_windows)
        yield findings.compare(
            f"heads of {head_size}, {heads_per_key} per key head{', windows' * has_windows}, {dtype}",
            functools.partial(deviation_of, device, case),
            kernel_proof.TOLERANCE[dtype],
            _REASON,
        )


def _deviation_compiled(device: jax.Device, case: kernel_proof.Case) -> float:
    """Prove the compiled kernel again; raise RuntimeError if it works, but models do not use it."""
    found = kernel_proof.prove(case, device)
    remembered = kernel_proof.outcome(case)
    if found.is_trusted and not remembered.is_trusted:
        raise RuntimeError(f"it works, but models do not use it because an earlier proof failed: {remembered.reason}")
    return _deviation(found)


def _deviation_interpreted(device: jax.Device, case: kernel_proof.Case) -> float:
    return _deviation(kernel_proof.prove(dataclasses.replace(case, platform="gpu"), device, interpret=True))


def _deviation(found: kernel_proof.Outcome) -> float:
    if found.deviation is None:
        raise RuntimeError(found.reason)
    return found.deviation


def _deviation_of_states(inputs: inputs_lib.Inputs, dtype: str) -> float:
    """Return the largest difference that the kernel makes to log-probabilities, in nats."""
    logp = []
    for value in (kernel_proof.ON, kernel_proof.OFF):
        with switched(value):
            model = inputs.model(inputs_lib.TINY, inputs.device, dtype)
            logp.append(inputs_lib.log_probabilities(model, inputs.prompts(model)))
    return inputs_lib.largest(logp[0] - logp[1])


def _seconds(inputs: inputs_lib.Inputs) -> dict[str, float]:
    """Return the seconds of a pass with the kernel and without."""
    seconds: dict[str, float] = {}
    for value in (kernel_proof.ON, kernel_proof.OFF):
        with switched(value):
            model = inputs.model(inputs_lib.TINY, inputs.device)
            turn = timing.stopwatch(functools.partial(states_lib.read, model, inputs.prompts(model)))
            seconds |= timing.medians({f"seconds_of_a_pass_with_kernel_{value}": turn}, _REPETITIONS)
    return seconds


@contextlib.contextmanager
def switched(value: str) -> Iterator[None]:
    """Set KNNPROMPT_PREFIX_KERNEL for the models whose first pass is within this context."""
    before = os.environ.get(kernel_proof.SWITCH)
    os.environ[kernel_proof.SWITCH] = value
    try:
        yield
    finally:
        del os.environ[kernel_proof.SWITCH]
        if before is not None:
            os.environ[kernel_proof.SWITCH] = before


CHECKS = (findings.Check("attention", run),)
