"""Run checks in their order, and gather their lines and speeds in one record."""

import dataclasses
import functools
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import jax

from knnprompt_jax.cli import command_settings as settings_lib
from knnprompt_jax.common import errors, parallel, progress
from knnprompt_jax.devices import checks, device_report, machine, model_checks, search_checks, speeds, workload
from knnprompt_jax.devices.checks import Check, Line
from knnprompt_jax.models import kernel_proof

CORRECTNESS: dict[str, Check] = {
    "states": model_checks.check_states,
    "attention": model_checks.check_attention,
    "packing": model_checks.check_packing,
    "deterministic mode": model_checks.check_deterministic_mode,
    "search": search_checks.check_search,
    "meshes": model_checks.check_meshes,
    "main job": model_checks.check_main_job,
}
SHAPES_ON_CPUS = ("gpt2",)
SHAPES_ON_ACCELERATORS = ("gpt2-xl", "facebook/opt-6.7b", "meta-llama/Meta-Llama-3-8B")


def run(settings: settings_lib.CheckSettings, path: pathlib.Path) -> dict[str, Any]:
    """Run all checks and return the record of this process, whose `failed` counts the lines that failed.

    Process 0 writes the record to `path` before each check, with the check's name as `running`, and at the end.

    Raises:
        UserError: an unknown model or shape, a wrong value of KNNPROMPT_PREFIX_KERNEL, or processes that cannot be
            joined.
    """
    started = time.monotonic()
    kernel_proof.switch()
    platforms = jax.config.jax_platforms  # type: ignore[attr-defined]  # JAX defines options at run time.
    if platforms and "cpu" not in platforms.split(","):  # References are computed on CPUs.
        jax.config.update("jax_platforms", f"{platforms},cpu")
    parallel.start(**settings.distributed.to_dict())
    shapes = () if settings.quick else settings.shapes
    if shapes is None:
        shapes = SHAPES_ON_CPUS if jax.default_backend() == "cpu" else SHAPES_ON_ACCELERATORS
    measured = {
        f"speed of {shape}": functools.partial(speeds.measure_shape, workload.describe(shape)) for shape in shapes
    }
    inputs = checks.Inputs(settings.model)
    record: dict[str, Any] = {**machine.describe(), "running": "", "failed": 0, "checks": [], "speeds": []}

    def write(running: str) -> None:
        record["running"] = running
        record["seconds"] = round(time.monotonic() - started, 1)
        parallel.call_in_main(lambda: device_report.write(path, settings, record))

    for name, check in (CORRECTNESS | measured).items():
        write(name)
        for found in _run(name, check, inputs):
            if isinstance(found, dict):
                record["speeds"].append(found)
            else:
                line = dataclasses.asdict(found)
                title = ": ".join(filter(None, (name, line.pop("compared"))))
                record["checks"].append({"check": title, **line})
                record["failed"] += found.result == checks.FAIL
    write("")
    return record


def _run(name: str, check: Check, inputs: checks.Inputs) -> Iterator[Line | dict[str, Any]]:
    """Yield what a check finds; a measurement that does not fit in the memory counts as not run."""
    progress.note(f"{name} …")
    try:
        yield from check(inputs)
    except Exception as error:
        line = checks.failure("", error)
        is_too_large = name not in CORRECTNESS and errors.is_out_of_memory(error)
        yield checks.skipped("", line.reason) if is_too_large else line
