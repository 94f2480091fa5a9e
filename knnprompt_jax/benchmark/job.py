"""Run a benchmark, from settings to result."""

import os
import pathlib
import platform
from typing import Any

import jax

from knnprompt_jax import files
from knnprompt_jax.benchmark import construction, search
from knnprompt_jax.models import registry
from knnprompt_jax.planning import workload
from knnprompt_jax.settings import planning as settings_lib

_MODES = {"construction": construction.run, "search": search.run}


def run(settings: settings_lib.BenchmarkSettings) -> dict[str, Any]:
    """Run the modes of the settings, one after the other.

    Raises:
        UserError: impossible settings, or an output folder that cannot be written.
    """
    files.check_writable(pathlib.Path(settings.output), folder=True)
    subject = workload.describe(settings.model)
    if settings.mode != "construction":
        search.sizes(settings, subject)  # Refuse before anything is measured.
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    processor = next((line.split(": ")[1] for line in lines if line.startswith("model name")), platform.processor())
    result: dict[str, Any] = {
        "model": subject.name,
        "weights": "random" if subject.path is None else "its own",
        "parameters": registry.num_parameters(subject.config),
        "dtype": settings.dtype,
        "devices": f"{jax.device_count()} × {jax.devices()[0].device_kind}",
        "host": f"{processor}, {len(os.sched_getaffinity(0))} cores",
    }
    for mode, measure in _MODES.items():
        if settings.mode in (mode, "all"):
            result[mode] = measure(settings, subject)
    return result
