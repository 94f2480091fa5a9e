"""Run a benchmark, from settings to result."""

import dataclasses
import pathlib
from typing import Any

from knnprompt_jax import files
from knnprompt_jax.benchmark import construction, report, search
from knnprompt_jax.benchmark import settings as settings_lib
from knnprompt_jax.models import registry
from knnprompt_jax.planning import workload

_MODES = {"construction": construction.run, "search": search.run}


def run(settings: settings_lib.BenchmarkSettings) -> dict[str, Any]:
    """Run the modes of the settings, one after the other.

    Raises:
        UserError: impossible settings, an output folder that cannot be written, or a peer that fails.
    """
    files.check_writable(pathlib.Path(settings.output), folder=True)
    subject = workload.describe(settings.model, settings.revision)
    result: dict[str, Any] = {
        "environment": report.environment(),
        "settings": settings.to_dict(),
        "model": {
            "name": subject.name,
            "is_random": subject.path is None,
            "parameters": registry.num_parameters(subject.config),
            **dataclasses.asdict(subject.config),
        },
    }
    for mode, measure in _MODES.items():
        if settings.mode in (mode, "all"):
            result[mode] = measure(settings, subject)
    return result
