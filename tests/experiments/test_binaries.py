"""The binaries as a user starts them: a mistake is one line and exit status 2."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def start(binary: str, *options: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(ROOT / "experiments" / f"{binary}.py"), *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=ROOT, env=environment, check=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--config.sots=3"], 'Did you mean "shots"'),
        (["--config.shots=many"], "many"),
        (["--config=configs/none.py"], "No such file"),
        (["surplus"], "unexpected argument 'surplus'"),
        (["--nosuchflag"], "nosuchflag"),
        (["--config.task=poems"], "choose from"),
    ],
)
def test_mistakes_are_one_line_and_status_2(options, message):
    result = start("knn_prompting", *options)
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert not result.stdout


def test_help_lists_every_option_with_its_comment():
    text = start("knn_prompting", "--help").stdout
    for option in ("--config.model=", "--config.demo_shots=-1", "M_T", "--config.direction="):
        assert option in text
