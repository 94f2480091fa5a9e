"""A benchmark from settings to result."""

import dataclasses
from typing import Any

from knnprompt_jax.benchmark import construction, growth, report, search, workloads
from knnprompt_jax.benchmark import settings as settings_lib

_MODES = {"construction": construction.run, "search": search.run, "growth": growth.run}


def run(settings: settings_lib.BenchmarkSettings) -> dict[str, Any]:
    """Runs the modes asked for, one after the other.

    Raises:
        UserError: on settings that cannot work, and on a peer that fails.
    """
    config = workloads.model_config(settings)
    result: dict[str, Any] = {
        "environment": report.environment(),
        "settings": dataclasses.asdict(settings),
        "model": {"shape": settings.model_shape, "parameters": config.num_parameters, **dataclasses.asdict(config)},
    }
    for mode, measure in _MODES.items():
        if settings.mode in (mode, "all"):
            result[mode] = measure(settings, config)
    return result
