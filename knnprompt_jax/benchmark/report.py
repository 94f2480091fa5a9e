"""Write results as JSON files and as tables for the terminal."""

import datetime
import importlib.metadata
import json
import math
import os
import pathlib
import platform
import sys
from collections.abc import Mapping
from typing import Any

import jax

from knnprompt_jax import app, files, options, tables
from knnprompt_jax.benchmark import timing

_PACKAGES = (
    *("jax", "jaxlib", "libtpu", "flax", "numpy", "torch"),
    *("transformers", "gguf", "faiss-cpu", "scikit-learn", "llama-cpp-python"),
)
_VARIABLES = ("JAX_", "XLA_", "KNNPROMPT_")  # The beginnings of environment variables that change results.


def publish(folder: str, kind: str, settings: options.Options, result: Mapping[str, Any]) -> None:
    """Print a result and write it as `write`."""
    app.show(render(result))
    app.show(f"\nrecord: {write(folder, kind, settings, result)}")


def describe_machine() -> dict[str, str]:
    """Return the devices of JAX, and the processor and cores of the host."""
    processor = platform.processor()
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        processor = models[0].split(": ")[1] if models else processor
    return {
        "devices": f"{jax.device_count()} × {jax.devices()[0].device_kind}",
        "host": f"{processor}, {timing.num_cores()} cores",
    }


def write(folder: str, kind: str, settings: options.Options, result: Mapping[str, Any]) -> pathlib.Path:
    """Write the result as `write_to` under a new name; return its path."""
    path = new_path(folder, kind)
    write_to(path, settings, result)
    return path


def new_path(folder: str, kind: str) -> pathlib.Path:
    """Return a path for the results of this process that names their kind and the time."""
    return pathlib.Path(folder) / f"{kind}-{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H%M%SZ}-{os.getpid()}.json"


def write_to(path: pathlib.Path, settings: options.Options, result: Mapping[str, Any]) -> None:
    """Write the result with its settings, the command, versions and environment variables as JSON.

    NaN and infinity become strings.
    """
    installed = {package.name: package.version for package in importlib.metadata.distributions()}
    record = {
        "command": " ".join(sys.argv),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": {name: installed[name] for name in _PACKAGES if name in installed},
        "variables": {name: value for name, value in os.environ.items() if name.startswith(_VARIABLES)},
        "settings": settings.to_dict(),
        **result,
    }
    files.write(path, json.dumps(_finite(record), indent=1, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    """Return a value of JSON without NaN and infinity."""
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def render(result: Mapping[str, Any]) -> str:
    """Return the single values of a result line by line, then its tables."""
    single = {name: value for name, value in result.items() if not isinstance(value, list)}
    width = max(map(len, single))
    sections = ["\n".join(f"{name.replace('_', ' '):{width}}  {_cell(value)}" for name, value in single.items())]
    for value in result.values():
        if isinstance(value, list) and value:
            header = [title.replace("_", " ") for title in value[0]]
            sections.append(tables.render(header, [[*map(_cell, row.values())] for row in value]))
    return "\n\n".join(sections)


def _cell(value: Any) -> str:
    """Return a value as text; a float has three digits, or all digits before the point."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
