"""Run a benchmark, from settings to its record and tables."""

import dataclasses
import os
import pathlib
import platform
from typing import Any

import jax

from knnprompt_jax import files
from knnprompt_jax.benchmark import construction, search
from knnprompt_jax.benchmark import settings as settings_lib
from knnprompt_jax.models import registry
from knnprompt_jax.planning import report, workload

_MODES = {"construction": construction.run, "search": search.run}


def run(settings: settings_lib.BenchmarkSettings) -> dict[str, Any]:
    """Run the modes of the settings, one after the other.

    Raises:
        UserError: impossible settings, an output folder that cannot be written, or a peer that fails.
    """
    files.check_writable(pathlib.Path(settings.output), folder=True)
    subject = workload.describe(settings.model, settings.revision)
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    processor = next((line.split(": ")[1] for line in lines if line.startswith("model name")), platform.processor())
    result: dict[str, Any] = {
        "environment": report.environment(),
        "hardware": f"{jax.device_count()} × {jax.devices()[0].device_kind}, {processor}, {os.cpu_count()} cores",
        "settings": settings.to_dict(),
        "model": {
            "name": subject.name,
            "weights": "random" if subject.path is None else "its own",
            "parameters": registry.num_parameters(subject.config),
            **dataclasses.asdict(subject.config),
        },
    }
    for mode, measure in _MODES.items():
        if settings.mode in (mode, "all"):
            result[mode] = measure(settings, subject)
    return result


def render(result: dict[str, Any]) -> str:
    """Return the tables of all modes that ran."""
    model, settings, versions = result["model"], result["settings"], result["environment"]["versions"]
    sections = [
        f"{model['name']}, {model['parameters']:,} parameters, weights: {model['weights']}, {settings['dtype']}; "
        f"{result['hardware']}\n{', '.join(map(' '.join, versions.items()))}"
    ]
    for mode in _MODES:
        if mode in result:
            measured = result[mode]
            single = [
                {"": name.replace("_", " "), mode: value}
                for name, value in measured.items()
                if not isinstance(value, list | dict)
            ]
            sections.append(report.table(single))
            sections += [report.table(value) for value in measured.values() if isinstance(value, list)]
            sections += [f"Without {peer}: {reason}." for peer, reason in measured.get("absent", {}).items()]
    return "\n\n".join(sections)
