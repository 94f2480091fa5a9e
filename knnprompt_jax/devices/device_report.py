"""Write results as JSON files, and render them as tables for the terminal."""

import datetime
import json
import os
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

from knnprompt_jax.cli import app
from knnprompt_jax.common import files, options, text_tables

_VARIABLES = ("JAX_", "XLA_", "KNNPROMPT_")  # The beginnings of environment variables that change results.


def publish(folder: str, kind: str, settings: options.Options, result: Mapping[str, Any]) -> None:
    """Print a result and write it to a new file."""
    path = new_path(folder, kind)
    write(path, settings, result)
    app.show(f"{render(result)}\n\nrecord: {path}")


def new_path(folder: str, kind: str) -> pathlib.Path:
    """Return a path for the results of this process that names their kind and the time."""
    return pathlib.Path(folder) / f"{kind}-{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H%M%SZ}-{os.getpid()}.json"


def write(path: pathlib.Path, settings: options.Options, result: Mapping[str, Any]) -> None:
    """Write a result with its settings, the command and the environment variables as JSON."""
    record = {
        "command": " ".join(sys.argv),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "variables": {name: value for name, value in os.environ.items() if name.startswith(_VARIABLES)},
        "settings": settings.to_dict(),
        **result,
    }
    files.write(path, json.dumps(record, indent=1, allow_nan=False) + "\n")


def render(result: Mapping[str, Any]) -> str:
    """Return the single values of a result line by line, then its tables."""
    single = {name: value for name, value in result.items() if not isinstance(value, list)}
    width = max(map(len, single))
    sections = ["\n".join(f"{name.replace('_', ' '):{width}}  {_cell(value)}" for name, value in single.items())]
    for value in result.values():
        if isinstance(value, list) and value:
            header = [title.replace("_", " ") for title in value[0]]
            sections.append(text_tables.render(header, [[*map(_cell, row.values())] for row in value]))
    return "\n\n".join(sections)


def _cell(value: Any) -> str:
    """Return a value as text; a float has three digits, or all digits before the point."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
