"""The speed of building a datastore, for published shapes with random weights, with and without the kernel."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax

from knnprompt_jax import errors
from knnprompt_jax.benchmark import construction, operations, timing, workload
from knnprompt_jax.check import attention_kernel, environment, findings
from knnprompt_jax.check import inputs as inputs_lib
from knnprompt_jax.lm import memory, programs
from knnprompt_jax.models import attention, kernel_proof, registry
from knnprompt_jax.prompts import layout, packing
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


@dataclasses.dataclass(frozen=True)
class Subject:
    """A published shape with random weights, and a task whose lengths its prompts of random tokens have."""

    shape: str
    lengths: str

    @functools.cached_property
    def model(self) -> workload.ModelShape:
        """The shape's configuration."""
        return workload.describe(self.shape)

    @functools.cached_property
    def settings(self) -> benchmark_settings.BenchmarkSettings:
        """The settings of a measurement: float32 for small shapes, bfloat16 for large ones."""
        dtype = "bfloat16" if registry.num_parameters(self.model.config) >= _LARGE else "float32"
        return benchmark_settings.BenchmarkSettings(model=self.shape, dtype=dtype, repetitions=1, peers=())

    @property
    def group(self) -> layout.PromptGroup:
        """The prompts."""
        [group] = workload.random_prompts(self.model.config, self.lengths, _num_anchors()).groups
        return group

    def build(self) -> workload.Workload:
        """Return the prompts and the model that reads them."""
        return workload.build_random(self.settings, self.model, self.lengths, _num_anchors())

    def seconds_of_pass(self, inputs: inputs_lib.Inputs) -> float:
        """Estimate the seconds of measuring one use of the kernel."""
        speed = timing.speed_of_all(inputs.operations_per_second[self.settings.dtype], jax.device_count())
        compiling = _COMPILING_ON_CPUS if jax.default_backend() == "cpu" else _COMPILING_ON_ACCELERATORS
        return compiling + _PASSES * _SLOWER * operations.required(self.model.config, [self.group]) / speed

    def make_check(
        self,
        table: str,
        run: Callable[..., Iterator[findings.Finding]],
        seconds: Callable[..., float],
        misfit: Callable[..., str],
    ) -> findings.Check:
        """Return a measurement for a table; all functions have this subject as their first argument."""
        return findings.Check(
            f"{table}: {self.shape}, prompts with {self.lengths.upper()}'s lengths",
            functools.partial(run, self),
            seconds=functools.partial(seconds, self),
            misfit=functools.partial(misfit, self),
            is_measurement=True,
        )


def make_checks(settings: settings_lib.CheckSettings) -> list[findings.Check]:
    """Return a check per shape and lengths of prompts; raise UserError if a shape is unknown."""
    for shape in settings.shapes:
        if shape not in workload.published():
            raise errors.UserError(f"--shapes={shape}: choose from {errors.join_names(registry.PUBLISHED)}")
    subjects = [Subject(shape, lengths) for shape in settings.shapes for lengths in workload.LENGTHS]
    return [subject.make_check(TABLE, run, _seconds, _misfit) for subject in subjects]


def run(subject: Subject, inputs: inputs_lib.Inputs) -> Iterator[findings.Finding]:
    """Measure passes over prompts of random tokens, with the attention kernel and without."""
    del inputs
    for switch in _switches():
        with attention_kernel.switched(switch):
            work = subject.build()
            found = construction.measure(subject.settings, subject.model, work)
            has_kernel = work.model.execution.has_kernel
        values = {"shape": subject.shape, "prompts": subject.lengths, "dtype": subject.settings.dtype}
        yield findings.Row(TABLE, {**values, "kernel": has_kernel, **_row(found)})


def _num_anchors() -> int:
    is_cpu = jax.default_backend() == "cpu"
    return _ANCHORS_ON_CPUS if is_cpu else _ANCHORS_PER_ACCELERATOR * jax.device_count()


def _switches() -> tuple[str, ...]:
    """Return the uses of the kernel to measure: the user's choice, then without."""
    has_kernel = jax.default_backend() in attention.KERNEL_PLATFORMS
    return tuple(dict.fromkeys((kernel_proof.switch(), kernel_proof.OFF))) if has_kernel else (kernel_proof.OFF,)


def _row(found: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a measurement; the peak of memory is that of the process so far."""
    [peak] = [value for name, value in found.items() if name.startswith("peak_mb")]
    return {title: found[name] for title, name in _COLUMNS.items()} | {"peak_gb_so_far": peak / 1e3}


def _seconds(subject: Subject, inputs: inputs_lib.Inputs) -> float:
    return len(_switches()) * subject.seconds_of_pass(inputs)


def _misfit(subject: Subject) -> str:
    """Return why a shape cannot run: too little memory."""
    config = subject.model.config
    mesh = workload.make_mesh(subject.settings, config)
    packed = packing.choose_shape([subject.group], programs.step_tokens(jax.default_backend()))
    need = memory.estimate(config, subject.settings.dtype, packed, mesh, jax.default_backend()).total
    return environment.misfit(need, memory.MARGIN)
