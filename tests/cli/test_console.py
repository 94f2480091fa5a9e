"""The command `knnprompt`: every binary under its name."""

import re
import shlex

import pytest

from knnprompt_jax.cli import console
from tests import processes, shell
from tests.cli import test_options_all


def test_every_binary_has_a_command():
    assert {console.path_of(name) for name in console.COMMANDS} == set((processes.ROOT / "experiments").glob("*.py"))


HEAVY = ("compare", "paper")  # Their options are those of all methods, which import JAX.
HELP = """
import contextlib, sys
import knnprompt_jax as kp
assert set(kp.__all__) <= set(dir(kp)) and kp.Task and kp.UserError
from knnprompt_jax.cli import console
from tests import shell
for name in sys.argv[1:]:
    assert "--" in shell.run(f"knnprompt {name} --help")
    print(name, {"flax", "jax", "pandas", "scipy", "sklearn", "transformers"} & set(sys.modules))
with contextlib.suppress(AssertionError):  # It ends with status 2.
    shell.run("knnprompt evaluate --classifier=nope")
print("mistake", {"flax", "jax", "pandas", "scipy", "sklearn", "transformers"} & set(sys.modules))
"""


def test_the_package_and_the_help_and_mistakes_of_a_command_import_no_slow_library():
    """Public names are imported on first use."""
    names = [name for name in console.COMMANDS if name not in HEAVY]
    printed, _ = processes.run("-c", HELP, *names)
    assert printed.splitlines() == [f"{name} set()" for name in [*names, "mistake"]]


def test_help_lists_the_commands_and_imports_nothing_heavy(tmp_path):
    printed, imports = processes.run("-X", "importtime", "-m", "knnprompt_jax", "--help", cwd=tmp_path)
    for name in console.COMMANDS:
        assert f"\n  {name} " in printed
    imported = {line.rpartition("|")[2].strip() for line in imports.splitlines()}
    assert "knnprompt_jax.cli.console" in imported and not {"jax", "numpy", "absl", "sklearn"} & imported


@pytest.mark.parametrize("command", console.COMMANDS)
def test_every_example_of_a_help_text_is_accepted(command):
    """The work that it begins is that of the documents' commands, which `test_docs` runs."""
    described = shell.run(f"knnprompt {command} --help").partition("\n  --")[0]
    examples = re.findall(r"^(?:.*\| )?knnprompt (\w+)(.*?)(?: \|.*)?$", described, re.MULTILINE)
    assert examples
    for name, rest in examples:
        status, printed, _ = test_options_all.begin(name, *shlex.split(rest, comments=True))
        assert status is None, printed
