"""Binaries, each in a process of its own."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def start() -> Callable[..., subprocess.Popen]:
    """`start("compare", "--model=tiny")`: the process of a binary."""

    def run(binary: str, *options: str) -> subprocess.Popen:
        command = [sys.executable, str(ROOT / "experiments" / f"{binary}.py"), *options]
        environment, pipes = (
            {**os.environ, "PYTHONPATH": str(ROOT)},
            dict.fromkeys(("stdout", "stderr"), subprocess.PIPE),
        )
        return subprocess.Popen(command, text=True, cwd=ROOT, env=environment, **pipes)

    return run
