"""The checks of style, types and the order of imports."""

import pathlib
import subprocess
import sysconfig

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("command", ["ruff check .", "ruff format --check .", "mypy", "lint-imports"])
def test_passes(command):
    program, *arguments = command.split()
    path = pathlib.Path(sysconfig.get_path("scripts"), program)
    done = subprocess.run([path, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
