"""The command `knnprompt`: every binary under its name."""

import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from knnprompt_jax import console
from tests import commands, test_options_all

ROOT = pathlib.Path(__file__).resolve().parents[1]


def start(folder: pathlib.Path, *arguments: str, python: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
    command = [sys.executable, *python, "-m", "knnprompt_jax", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_every_binary_has_a_command():
    assert {console.binary(name) for name in console.COMMANDS} == set((ROOT / "experiments").glob("*.py"))


def test_help_lists_the_commands_and_imports_nothing_heavy(tmp_path):
    done = start(tmp_path, "--help", python=("-X", "importtime"))
    assert done.returncode == 0
    for name in console.COMMANDS:
        assert f"\n  {name} " in done.stdout
    assert "predict    Labels the rows of a file with a saved classifier." in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "knnprompt_jax.console" in imported and not {"jax", "numpy", "absl", "sklearn"} & imported
    assert start(tmp_path).stdout == done.stdout


@pytest.mark.parametrize("command", console.COMMANDS)
def test_every_example_of_a_help_text_is_accepted(command):
    """The work that it begins is that of the documents' commands, which `test_docs` runs."""
    described = commands.run(f"knnprompt {command} --help").partition("\n  --")[0]
    examples = re.findall(r"^(?:.*\| )?knnprompt (\w+)(.*?)(?: \|.*)?$", described, re.MULTILINE)
    assert examples
    for name, rest in examples:
        status, printed, _ = test_options_all.begin(console.COMMANDS[name], *shlex.split(rest, comments=True))
        assert status is None, printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prdict"], "unknown command 'prdict': choose from fit, evaluate, predict"),
        (["report", "--records=none"], "none: no such folder of results"),
    ],
)
def test_mistakes_are_one_line_and_status_2(tmp_path, arguments, message):
    done = start(tmp_path, *arguments)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith(f"error: {message}") and done.stderr.count("\n") == 1
