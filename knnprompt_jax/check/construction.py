"""The speed of building a datastore, for published shapes with random weights, with and without the kernel."""

import functools
from collections.abc import Iterator
from typing import Any

import jax

from knnprompt_jax import errors
from knnprompt_jax.benchmark import construction, operations, timing, workload
from knnprompt_jax.check import attention_kernel, environment, findings
from knnprompt_jax.check import inputs as inputs_lib
from knnprompt_jax.lm import memory, programs
from knnprompt_jax.models import attention, kernel_proof, registry
from knnprompt_jax.prompts import packing
from knnprompt_jax.settings import benchmark as benchmark_settings
from knnprompt_jax.settings import check as settings_lib

TABLE = "construction"
_LARGE = 3e9  # Parameters from which weights are bfloat16.
_ANCHORS_ON_CPUS = 256
_ANCHORS_PER_ACCELERATOR = 4096  # Enough to fill several steps of each data shard.
_PASSES = 3  # One compiles, one warms up, one is timed.
_COMPILING_ON_CPUS = 15.0  # Seconds of the first pass.
_COMPILING_ON_ACCELERATORS = 60.0
_SLOWER = 1.7  # Times slower than the product of large matrices, at worst.
_COLUMNS = {
    "anchors/s": "anchors_per_second",
    "share_of_peak": "share_of_peak",
    "compile_seconds": "compile_seconds",
}


def make_checks(settings: settings_lib.CheckSettings) -> list[findings.Check]:
    """Return a check per shape and lengths of prompts; raise UserError if a shape is unknown."""
    checks = []
    for shape in settings.shapes:
        check_shape(shape)
        for lengths in workload.LENGTHS:
            found = findings.Check(
                f"{TABLE}: {shape}, prompts with {lengths.upper()}'s lengths",
                functools.partial(run, shape=shape, lengths=lengths),
                seconds=functools.partial(_seconds, shape=shape, lengths=lengths),
                misfit=functools.partial(_misfit, shape=shape, lengths=lengths),
                is_measurement=True,
            )
            checks.append(found)
    return checks


def check_shape(shape: str) -> None:
    """Raise UserError with the choices if no published model has this name."""
    if shape not in workload.published():
        raise errors.UserError(f"--shapes={shape}: choose from {errors.join_names(registry.PUBLISHED)}")


def run(inputs: inputs_lib.Inputs, shape: str, lengths: str) -> Iterator[findings.Finding]:
    """Measure passes over prompts of random tokens, with the attention kernel and without."""
    del inputs
    settings = settings_for(shape)
    described = workload.describe(shape)
    for switch in _switches():
        with attention_kernel.switched(switch):
            work = workload.build_random(settings, described, lengths, num_anchors())
            found = construction.measure(settings, described, work)
            has_kernel = work.model.execution.has_kernel
        values = {"shape": shape, "prompts": lengths, "dtype": settings.dtype, "kernel": has_kernel}
        yield findings.Row(TABLE, values | _row(found))


def _switches() -> tuple[str, ...]:
    """Return the uses of the kernel to measure: the user's choice, then without."""
    has_kernel = jax.default_backend() in attention.KERNEL_PLATFORMS
    return tuple(dict.fromkeys((kernel_proof.switch(), kernel_proof.OFF))) if has_kernel else (kernel_proof.OFF,)


def _row(found: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a measurement; the peak of memory is that of the process so far."""
    [peak] = [value for name, value in found.items() if name.startswith("peak_mb")]
    return {title: found[name] for title, name in _COLUMNS.items()} | {"peak_gb_so_far": peak / 1e3}


def settings_for(shape: str) -> benchmark_settings.BenchmarkSettings:
    """Return the settings of a measurement: float32 for small shapes, bfloat16 for large ones."""
    parameters = registry.num_parameters(workload.describe(shape).config)
    dtype = "bfloat16" if parameters >= _LARGE else "float32"
    return benchmark_settings.BenchmarkSettings(model=shape, dtype=dtype, repetitions=1, peers=())


def num_anchors() -> int:
    """Return the number of anchors of a measurement."""
    is_cpu = jax.default_backend() == "cpu"
    return _ANCHORS_ON_CPUS if is_cpu else _ANCHORS_PER_ACCELERATOR * jax.device_count()


def _seconds(inputs: inputs_lib.Inputs, shape: str, lengths: str) -> float:
    return len(_switches()) * seconds_of_pass(inputs, shape, lengths)


def seconds_of_pass(inputs: inputs_lib.Inputs, shape: str, lengths: str) -> float:
    """Estimate the seconds of measuring one use of the kernel."""
    settings = settings_for(shape)
    config = workload.describe(shape).config
    groups = workload.random_prompts(config, lengths, num_anchors()).groups
    speed = timing.speed_of_all(inputs.operations_per_second[settings.dtype], jax.device_count())
    compiling = _COMPILING_ON_CPUS if jax.default_backend() == "cpu" else _COMPILING_ON_ACCELERATORS
    return compiling + _PASSES * _SLOWER * operations.required(config, groups) / speed


def _misfit(inputs: inputs_lib.Inputs, shape: str, lengths: str) -> str:
    """Return why a shape cannot run: too little memory."""
    del inputs
    settings = settings_for(shape)
    config = workload.describe(shape).config
    mesh = workload.make_mesh(settings, config)
    step_tokens = programs.step_tokens(jax.default_backend())
    packed = packing.choose_shape(workload.random_prompts(config, lengths, num_anchors()).groups, step_tokens)
    need = memory.estimate(config, settings.dtype, packed, mesh, jax.default_backend()).total
    return environment.misfit(need, memory.MARGIN)
