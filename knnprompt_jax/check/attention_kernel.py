"""The attention kernel against XLA's attention: outputs on a random case, then states and time of a pass."""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Iterator

from knnprompt_jax import states as states_lib
from knnprompt_jax.benchmark import timing
from knnprompt_jax.check import check
from knnprompt_jax.check import subject as subject_lib
from knnprompt_jax.models import attention, kernel_proof

_REASON = "float32: rounding of products; bfloat16: two roundings to 8 bits (models/kernel_proof.py derives both)"
_REPETITIONS = 3


def run(subject: subject_lib.Subject) -> Iterator[check.Finding]:
    """Compare the kernel that the tiny model's heads need, in both dtypes; CPUs interpret the kernel of GPUs."""
    device = subject.device.devices.flat[0]
    has_kernel = device.platform in attention.KERNEL_PLATFORMS
    config = subject.tested.config
    for dtype, allowed in kernel_proof.TOLERANCE.items():
        case = kernel_proof.Case.of(device, config, dtype)
        case = case if has_kernel else dataclasses.replace(case, platform="gpu")
        found = kernel_proof.prove(case, device, interpret=not has_kernel)
        how = "compiled" if has_kernel else "interpreted"
        if found.deviation is None:
            raise RuntimeError(f"{dtype}: {found.reason}")
        yield check.Comparison(f"kernel, {how}, against XLA's attention, {dtype}", found.deviation, allowed, _REASON)
    if not has_kernel:
        yield check.Skipped("states and time of a pass with the kernel", f"{device.platform} has no compiled kernel")
        return
    states = {}
    seconds = {}
    for switch in (kernel_proof.ON, kernel_proof.OFF):
        with switched(switch):
            model = subject.model(subject_lib.TINY, subject.device)
            prompts = subject.prompts(model)
            states[switch] = subject_lib.read(model, prompts)
            turn = timing.stopwatch(functools.partial(states_lib.read, model, prompts))
            seconds[switch] = timing.medians({switch: turn}, _REPETITIONS)[switch]
    head_VE = subject_lib.head_rows(subject.reference)
    logp = {switch: subject_lib.log_probabilities(head_VE, found) for switch, found in states.items()}
    deviation = subject_lib.largest(logp[kernel_proof.ON] - logp[kernel_proof.OFF])
    yield check.Comparison(
        "states with the kernel against XLA's, nats", deviation, subject_lib.NATS, subject_lib.NATS_REASON
    )
    yield check.Facts({f"seconds_of_a_pass_with_kernel_{switch}": taken for switch, taken in seconds.items()})


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


CHECKS = (check.Check("attention", run),)
