"""The binaries as a user starts them: --help lists every option once, and a mistake is one line and exit status 2."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from knnprompt_jax import options
from tests import test_options_all

ROOT = pathlib.Path(__file__).resolve().parents[1]
BINARY = '''"""Says what it is told."""
import dataclasses
from absl import flags
from knnprompt_jax import app, options

@dataclasses.dataclass(frozen=True)
class Inner(options.Options):
    memory_mb: float = options.option(512.0, "Memory.", least=1)

@dataclasses.dataclass(frozen=True)
class Settings(options.Options):
    k: int = options.option(3, "Neighbours.", least=1)
    seeds: tuple[int, ...] = options.option((1, 2), "Of draws.", needed=True)
    names: tuple[str, ...] = options.option(("a",), "Of tasks.")
    hub: bool = options.option(False, "Rows from the Hub.")
    store: Inner = options.group(Inner)

def kind(config):
    return Settings

CONFIG = app.Config(__file__, "say.py", kind)
DRY_RUN = flags.DEFINE_bool("dry_run", False, "Say nothing.")
if __name__ == "__main__":
    app.run(lambda: print(CONFIG.value.to_dict()))
'''
CONFIG = """import sys
from knnprompt_jax import errors, options

def get_config(kind="plain"):
    if kind != "plain":
        raise errors.UserError(f"kind={kind!r}: choose from plain")
    return options.config_of(sys.modules["__main__"].Settings, k=5)
"""
FILES = {
    "binaries/say.py": BINARY,
    "configs/say.py": CONFIG,
    "syntax.py": "def get_config(:",
    "name.py": "def get_config(): return nothing",
    "type.py": "def get_config(): return 1 + 'a'",
    "unknown.py": "def get_config(): return {'shots': 3}",
}


def start(path: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "60"}
    command = [sys.executable, str(path), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=path.parents[1], env=environment, check=False)


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A small binary with options of every type, and config files that cannot be used."""
    folder = tmp_path_factory.mktemp("app")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder / "binaries" / "say.py"


def test_values_on_the_command_line(binary):
    given = ["--config.k=7", "--config.seeds=5", "--config.names=a/*,b", "--config.hub", "--config.store.memory_mb=3"]
    said = {"k": 7, "seeds": (5,), "names": ("a/*", "b"), "hub": True, "store": {"memory_mb": 3.0}}
    assert start(binary, *given).stdout == f"{said}\n"
    repeated = ["--config=configs/say.py:plain", "--config.seeds=3", "--config.seeds=(4, 5)", "--noconfig.hub"]
    said = {"k": 5, "seeds": (3, 4, 5), "names": ("a",), "hub": False, "store": {"memory_mb": 512.0}}
    assert start(binary, *repeated).stdout == f"{said}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config.k=abc"], "k='abc': it must be a whole number"),
        (["--config.seeds=abc"], "seeds=('abc',): each must be a whole number"),
        (["--config.seeds=(1.5,)"], "seeds=(1.5,): each must be a whole number"),
        (["--config.hub=maybe"], "hub='maybe': it must be True or False"),
        (["--config.store.memory_mb=nan"], "store.memory_mb='nan': it must be a number, and finite"),
        (["--config.seed=3"], "unknown option: 'seed' Did you mean \"seeds\""),
        (["--config=nowhere.py"], "--config=nowhere.py: OSError: [Errno 2] No such file"),
        (["--config=syntax.py"], "--config=syntax.py: SyntaxError: invalid syntax (syntax.py, line 1)"),
        (["--config", "name.py"], "--config=name.py: NameError: name 'nothing' is not defined"),
        (["--config=type.py"], "flag --config=type.py: Error whilst parsing config file: TypeError: unsupported"),
        (["--config=unknown.py"], "unknown option 'shots': choose from hub, k, names, seeds, store"),
        (["--config=configs/say.py:other"], "kind='other': choose from plain"),
        (["surplus"], "unexpected argument 'surplus': options are written --name=value"),
        (["--nothing"], "unknown option --nothing: --help lists them"),
    ],
)
def test_mistakes_are_one_line_and_status_2(binary, arguments, message):
    done = start(binary, *arguments)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith(f"error: {message}") and done.stderr.count("\n") == 1


def test_help_shows_the_values_of_the_config_and_the_command_line(binary):
    done = start(binary, "--config.seeds=3,4", "--help")
    assert done.returncode == 0 and done.stdout.startswith("Says what it is told.\n")
    assert "  --config.k=5\n      Neighbours.\n  --config.seeds=3,4\n" in done.stdout
    assert done.stdout.endswith("  --dry_run=False\n      Say nothing.\n")


FLAGS = BINARY.replace('app.Config(__file__, "say.py", kind)', "app.Flags(Settings)").replace("CONFIG", "FLAGS")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], {}),
        (["--k=7", "--seeds=5", "--names=a/*,b", "--hub"], {"k": 7, "seeds": (5,), "names": ("a/*", "b"), "hub": True}),
        (["--seeds=(4, 5)", "--nohub", "--store.memory_mb=3"], {"seeds": (4, 5), "store": {"memory_mb": 3.0}}),
    ],
)
def test_options_as_flags_of_their_own(binary, arguments, said):
    path = binary.with_name("flags.py")
    path.write_text(FLAGS)
    defaults = {"k": 3, "seeds": (1, 2), "names": ("a",), "hub": False, "store": {"memory_mb": 512.0}}
    assert start(path, *arguments).stdout == f"{ {**defaults, **said} }\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--k=abc"], "--k='abc': it must be a whole number"),
        (["--store.memory_mb=0"], "--store.memory_mb=0.0: at least 1 is needed"),
        (["--hub=maybe"], "--hub='maybe': it must be True or False"),
        (["--kk=3"], "unknown option --kk: --help lists them"),
        (["--name=3"], "unknown option --name: did you mean --names? --help lists them"),
    ],
)
def test_mistakes_in_flags_are_one_line_too(binary, arguments, message):
    path = binary.with_name("flags.py")
    path.write_text(FLAGS)
    done = start(path, *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"error: {message}")
    assert "\n  --k=3\n      Neighbours.\n" in start(path, "--help").stdout


REFUSED = """import pathlib
from knnprompt_jax import app

def main():
    print("begun")
    pathlib.Path("nowhere", "file").write_text("")

app.run(main)
"""


def test_what_the_system_refuses_is_one_line_too(binary):
    path = binary.with_name("refused.py")
    path.write_text(REFUSED)
    done = start(path)
    assert (done.returncode, done.stdout) == (2, "begun\n")
    assert done.stderr == "error: nowhere/file: No such file or directory\n"


@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_a_full_standard_output(binary, arguments):
    with open("/dev/full", "w") as full:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, str(binary), *arguments]
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, cwd=binary.parents[1], check=False
        )
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and done.stderr.endswith("No space left on device\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("binary", test_options_all.BINARIES, ids=lambda path: path.stem)
def test_help_lists_every_option_once(binary):
    """In the order of the declaration, with the value that it has by default, its help and choices."""
    kind, prefix, defaults = test_options_all.declared(binary)
    printed = start(binary, "--help").stdout.split("\n  --config=")[-1]
    entries = re.findall(rf"^  --{prefix}([\w.]+)=(.*)\n((?: {{6}}.*\n?)+)", printed, re.MULTILINE)
    listed = list(options.listed(kind))
    assert [option for option, _, _ in entries] == [option for option, _, _ in listed]
    for (_, shown, entry), (name, _, declaration) in zip(entries, listed, strict=True):
        default, said = defaults[name], " ".join(entry.split())
        assert shown == (",".join(map(str, default)) if isinstance(default, tuple) else str(default))
        assert said.startswith(" ".join(declaration["help"].split()))
        assert said.endswith(f"One of {', '.join(declaration['choices'])}.") or not declaration["choices"]


def test_an_option_of_the_config_is_named_where_its_flag_is_not_known():
    command = [sys.executable, str(ROOT / "experiments" / "tune.py"), "--store=there"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    told = "error: unknown option --store: did you mean --config.store? --help lists them\n"
    assert (done.returncode, done.stderr) == (2, told)
