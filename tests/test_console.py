"""The command `knnprompt`: every binary under its name."""

import re
import shlex

import pytest

from knnprompt_jax import console
from tests import commands, processes, test_options_all


def test_every_binary_has_a_command():
    assert {console.binary(name) for name in console.COMMANDS} == set((processes.ROOT / "experiments").glob("*.py"))


def test_help_lists_the_commands_and_imports_nothing_heavy(tmp_path):
    printed, imports = processes.run("-X", "importtime", "-m", "knnprompt_jax", "--help", cwd=tmp_path)
    for name in console.COMMANDS:
        assert f"\n  {name} " in printed
    imported = {line.rpartition("|")[2].strip() for line in imports.splitlines()}
    assert "knnprompt_jax.console" in imported and not {"jax", "numpy", "absl", "sklearn"} & imported


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
    printed, error = processes.run("-m", "knnprompt_jax", *arguments, status=2, cwd=tmp_path)
    assert not printed and error.startswith(f"error: {message}") and error.count("\n") == 1
