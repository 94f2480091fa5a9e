"""The flags of a binary: values, help, config files, and mistakes as one line with exit status 2."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from knnprompt_jax.cli import app
from knnprompt_jax.common import errors, options
from tests import processes, shell


class Inner(options.Options):
    """The memory."""

    memory_mb: float = options.option(512.0, "Memory.", least=1)


class Settings(options.Options):
    """The work."""

    FURTHER = ("names", "hub")

    k: int = options.option(3, "Neighbours.", least=1)
    shots: int = options.option("all", "Rows.", least=1, words={"all": 0})
    seeds: tuple[int, ...] = options.option((1, 2), "Seeds.", nonempty=True)
    names: tuple[str, ...] = options.option(("a",), "Names.")
    hub: bool = options.option(False, "Rows from the Hub.")
    text: str = options.option("", "A text.", verbatim=True)
    seed: int | None = options.option(None, "Seed of the draw.", least=0)
    store: Inner = options.group(Inner)


DEFAULTS = {"text": "", "k": 3, "shots": 0, "seeds": (1, 2), "names": ("a",), "hub": False, "seed": None}
DEFAULTS |= {"store": {"memory_mb": 512.0}}
CONFIG = """
from tests.cli.test_app import Inner, Settings
get_config = lambda: Settings(k=5, shots="all", store=Inner(memory_mb=64))
"""
FILES = {"good.py": CONFIG, "zero.py": CONFIG.replace("k=5", "k=0"), "other.py": "get_config = lambda: {'k': 5}"}


@pytest.fixture
def parse(tmp_path, monkeypatch):
    """`parse("--k=5", config="good.py")`: the values of the options, or the exit status and what was printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "60")
    for name, text in FILES.items():
        pathlib.Path(name).write_text(text)

    def parse(*arguments: str, config: str = "", run=lambda main, flags_parser: flags_parser(sys.argv)):
        with shell.started(["binary", *arguments], run) as printed:
            try:
                parsed = app.Flags(Settings, config)
                parsed.run(lambda: None)
                return parsed.value.to_dict()
            except SystemExit as stop:
                return stop.code, printed.getvalue()

    return parse


@pytest.mark.parametrize(
    ("arguments", "config", "values"),
    [
        ([], "", {}),
        (["--k=7", "--seeds=5", "--names=a/*, b", "--hub"], "", {"k": 7, "seeds": (5,), "names": ("a/*", "b"), "hub": True}),
        (["--nohub", "--shots=all", "--seed=0", "--k=4"], "", {"seed": 0, "k": 4}),
        (["--names=~/a,./~b", "--text=~/a"], "", {"names": (str(pathlib.Path.home() / "a"), "./~b"), "text": "~/a"}),
        ([], "good.py", {"k": 5, "store": {"memory_mb": 64.0}}),
        (["--config", "good.py"], "zero.py", {"k": 5, "store": {"memory_mb": 64.0}}),
        (["--config=good.py", "--store.memory_mb=3"], "zero.py", {"k": 5, "store": {"memory_mb": 3.0}}),
    ],
)  # fmt: skip
def test_values(parse, arguments, config, values):
    """A flag replaces the value of the config file, which replaces the declared default."""
    assert parse(*arguments, config=config) == {**DEFAULTS, **values}


def test_help_lists_the_main_options_and_helpfull_all(parse):
    status, printed = parse("--help")
    assert not status and "  --k=3\n      Neighbours.\n" in printed
    assert "--store.memory_mb=512.0\n      Memory.\n" in printed and "--hub" not in printed
    assert "--hub=False\n" in parse("--helpfull")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--k"], "Missing value for flag --k"),
        (["--k=2", "--hub", "--k=4"], "flag --k=4: already defined as 2"),
        (["surplus"], "unexpected argument 'surplus': write options as --name=value"),
        (["--nothing"], "Unknown command line flag 'nothing'"),
        (["--names=a,~nosuchuser/b"], "~nosuchuser/b: there is no such home folder"),
        (["--config=nowhere.py"], "nowhere.py: No such file or directory"),
        (["--config=zero.py"], "k=0: give a whole number from 1 to"),
        (["--config=other.py"], "--config=other.py: get_config() must return Settings or a subclass of it"),
    ],
)
def test_mistakes_are_one_line_and_status_2(parse, arguments, message):
    def run(main, flags_parser):
        flags_parser(sys.argv)
        main(sys.argv)

    status, printed = parse(*arguments, config="good.py", run=run)
    assert status == 2 and printed.count("\n") == 1 and message in printed


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (errors.UserError("two\nlines"), "two lines"),
        (OSError(2, "No such file or directory", "nowhere/file"), "nowhere/file: No such file or directory"),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes.\nMore"), "not enough memory: free some"),
    ],
)
def test_mistakes_in_the_work_are_one_line_too(parse, mistake, message):
    def fail(main, flags_parser):
        raise mistake

    status, printed = parse(run=fail)
    assert status == 2 and printed.startswith(f"error: {message}") and printed.count("\n") == 1


def test_terminals_that_cannot_show_a_character_get_an_escape():
    imports = "from knnprompt_jax.cli import app\nfrom knnprompt_jax.common import options\n"
    program = f"{imports}app.Flags(options.Options).run(lambda: print('caf\\u00e9'))"
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "caf\\xe9\n"), done.stderr


WORK = """
import pathlib, sys, time
from knnprompt_jax.cli import app
from knnprompt_jax.common import options, progress
def wait():
    print("ready", flush=True)
    time.sleep(60)
def talk():
    [progress.note("line") for _ in range(99_999)]
    pathlib.Path("saved").touch()
    print("line\\n" * 99_999)
app.Flags(options.Options).run({})
"""


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_command_with_one_line(sent):
    process = processes.start("-c", WORK.format("wait"))
    assert process.stdout.readline() == "ready\n"
    process.send_signal(sent)
    assert processes.finish(process, 130)[1] == "interrupted; run the same command again\n"


def test_a_reader_that_stops_reading_ends_a_command_quietly_after_its_work(tmp_path):
    """Run a pipe such as `knnprompt fit ... 2>&1 | head -1`."""
    command = ["bash", "-o", "pipefail", "-c", '"$0" -c "$1" 2>&1 | head -n 1', sys.executable, WORK.format("talk")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "line\n", "")
    assert (tmp_path / "saved").exists()
