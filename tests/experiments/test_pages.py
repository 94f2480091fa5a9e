"""The binaries that draw pages, as a user starts them."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("binary", "options", "message"),
    [
        ("report", ["--records=none"], "none: no such folder of results"),
        ("look", ["--store=none"], "not a saved classifier"),
        ("look", [], "--store"),
    ],
)
def test_mistakes_are_one_line_and_status_2(binary, options, message):
    command = [sys.executable, str(ROOT / "experiments" / f"{binary}.py"), *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment, check=False)
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert not result.stdout
