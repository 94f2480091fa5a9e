"""JSON records of plans and benchmarks."""

import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import sys
from collections.abc import Mapping
from typing import Any

from knnprompt_jax import files

_PACKAGES = ("jax", "jaxlib", "libtpu", "flax", "numpy", "torch", "transformers", "gguf", "faiss-cpu", "scikit-learn")


def environment() -> dict[str, Any]:
    """Return the command, the date and the versions."""
    installed = {distribution.name for distribution in importlib.metadata.distributions()}
    versions = {name: importlib.metadata.version(name) for name in _PACKAGES if name in installed}
    return {
        "command": " ".join(sys.argv),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": versions | {"python": platform.python_version()},
    }


def write(folder: pathlib.Path, kind: str, date: str, record: Mapping[str, Any]) -> pathlib.Path:
    """Write the record as JSON under a new name, whole or not at all, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{kind}-{date.replace(':', '').replace('+0000', 'Z')}-{os.getpid()}.json"
    with files.new_file(path) as draft:
        draft.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return path
