"""Plans and benchmarks as JSON files and as tables for the terminal."""

import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from knnprompt_jax import files, tables

_PACKAGES = (
    "jax",
    "jaxlib",
    "libtpu",
    "flax",
    "numpy",
    "torch",
    "transformers",
    "gguf",
    "faiss-cpu",
    "scikit-learn",
    "llama-cpp-python",
)


def environment() -> dict[str, Any]:
    """Return the command, the date and the versions."""
    installed = {each.name: each.version for each in importlib.metadata.distributions()}
    versions = {name: installed[name] for name in _PACKAGES if name in installed}
    return {
        "command": " ".join(sys.argv),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": versions | {"python": platform.python_version()},
    }


def write(folder: str, kind: str, record: Mapping[str, Any]) -> pathlib.Path:
    """Write the record as JSON under a new name, whole or not at all, and return its path."""
    date = record["environment"]["date"].replace(":", "").replace("+0000", "Z")
    path = pathlib.Path(folder) / f"{kind}-{date}-{os.getpid()}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.new_file(path) as draft:
        draft.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return path


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table with a column for each name of the rows; floats have three digits, or all digits before the point."""

    def cell(value: Any) -> str:
        if isinstance(value, float):
            return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
        return f"{value:,}" if isinstance(value, int) else str(value)

    return tables.render([name.replace("_", " ") for name in rows[0]], [[*map(cell, row.values())] for row in rows])
