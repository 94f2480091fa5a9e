"""A benchmark from settings to result."""

import dataclasses
import pathlib
from typing import Any

from knnprompt_jax import files
from knnprompt_jax.benchmark import construction, growth, report, search, subjects
from knnprompt_jax.benchmark import settings as settings_lib
from knnprompt_jax.models import registry

_MODES = {"construction": construction.run, "search": search.run, "growth": growth.run}


def run(settings: settings_lib.BenchmarkSettings) -> dict[str, Any]:
    """Runs the modes asked for, one after the other.

    Raises:
        UserError: settings or an output folder that cannot work; a peer that fails.
    """
    files.check_writable(pathlib.Path(settings.output), folder=True)
    subject = subjects.choose(settings)
    result: dict[str, Any] = {
        "environment": report.environment(),
        "settings": dataclasses.asdict(settings),
        "model": {
            "shape": subject.name,
            "stored": list(subject.stored),
            "parameters": registry.num_parameters(subject.config),
            **dataclasses.asdict(subject.config),
        },
    }
    for mode, measure in _MODES.items():
        if settings.mode in (mode, "all"):
            result[mode] = measure(settings, subject)
    return result
