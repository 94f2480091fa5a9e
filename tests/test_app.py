"""The flags of a binary: values, help, config files, and mistakes as one line with exit status 2."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from knnprompt_jax import app, errors, options
from tests import commands, processes


class Inner(options.Options):
    """The memory. More."""

    memory_mb: float = options.option(512.0, "Memory.", least=1)


class Settings(options.Options):
    """The work."""

    k: int = options.option(3, "Neighbours.", least=1)
    shots: int = options.option("all", "Rows.", least=1, words={"all": 0})
    seeds: tuple[int, ...] = options.option((1, 2), "Seeds.", nonempty=True)
    names: tuple[str, ...] = options.option(("a",), "Names.")
    hub: bool = options.option(False, "Rows from the Hub.")
    seed: int | None = options.option(None, "Seed of the draw.", least=0)
    store: Inner = options.group(Inner)


DEFAULTS = {"k": 3, "shots": 0, "seeds": (1, 2), "names": ("a",), "hub": False, "seed": None}
DEFAULTS |= {"store": {"memory_mb": 512.0}}
CONFIG = """
from tests.test_app import Inner, Settings

def get_config():
    return Settings(k=5, shots="all", store=Inner(memory_mb=64))
"""
FILES = {
    "good.py": CONFIG,
    "syntax.py": "def get_config(:",
    "name.py": "def get_config(): return nothing",
    "unknown.py": CONFIG.replace("k=", "neighbours="),
    "zero.py": CONFIG.replace("k=5", "k=0"),
    "other.py": "def get_config(): return {'k': 5}",
}


@pytest.fixture
def parse(tmp_path, monkeypatch):
    """`parse("--k=5", config="good.py")`: the values of the options, or the exit status and what was printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "60")
    for name, text in FILES.items():
        pathlib.Path(name).write_text(text)

    def parse(*arguments: str, config: str = "", run=lambda main, flags_parser: flags_parser(sys.argv)):
        with commands.started(["binary", *arguments], run) as printed:
            try:
                parsed = app.Flags(Settings, config)
                parsed.run(print)
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
        ([], "good.py", {"k": 5, "store": {"memory_mb": 64.0}}),
        (["--k=6"], "good.py", {"k": 6, "store": {"memory_mb": 64.0}}),
        (["--config=good.py", "--store.memory_mb=3"], "zero.py", {"k": 5, "store": {"memory_mb": 3.0}}),
    ],
)  # fmt: skip
def test_values(parse, arguments, config, values):
    """A flag replaces the value of the config file, which replaces the declared default."""
    assert parse(*arguments, config=config) == {**DEFAULTS, **values}


def test_help_has_a_heading_for_each_class_of_options(parse):
    status, printed = parse("--help", "--k=2")
    assert not status and "\nThe work\n\n  --k=2\n      Neighbours.\n" in printed
    assert printed.endswith("\nThe memory\n\n  --store.memory_mb=512.0\n      Memory.\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--k"], "Missing value for flag --k"),
        (["--seeds="], "--seeds=: give at least one value"),
        (["--k=2", "--hub", "--k=4"], "flag --k=4: already defined as 2"),
        (["surplus"], "unexpected argument 'surplus': write options as --name=value"),
        (["--nothing"], "unknown option --nothing: --help lists them"),
        (["--memory_mb=3"], "unknown option --memory_mb: did you mean --store.memory_mb?"),
        (["--config=nowhere.py"], "--config=nowhere.py: no such file"),
        (["--config=syntax.py"], "--config=syntax.py: SyntaxError: invalid syntax (syntax.py, line 1)"),
        (["--config", "name.py"], "--config=name.py: NameError: name 'nothing' is not defined"),
        (
            ["--config=unknown.py"],
            "--config=unknown.py: TypeError: Settings.__init__() got an unexpected keyword argument",
        ),
        (["--config=zero.py"], "--config=zero.py: k=0: at least 1 is required"),
        (["--config=other.py"], "--config=other.py: get_config() must return Settings or a subclass of it"),
    ],
)
def test_mistakes_are_one_line_and_status_2(parse, arguments, message):
    status, printed = parse(*arguments, config="good.py")
    assert status == 2 and printed.count("\n") == 1 and printed.startswith(f"error: {message}")


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (errors.UserError("two\nlines"), "error: two lines\n"),
        (OSError(2, "No such file or directory", "nowhere/file"), "error: nowhere/file: No such file or directory\n"),
        (KeyboardInterrupt(), "interrupted; run the same command again\n"),
        (
            RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes.\nMore"),
            "error: not enough memory: free some, or choose a smaller model or batch: RESOURCE_EXHAUSTED: Out of memory "
            "allocating 8 bytes.\n",
        ),
        (
            ImportError("lib.so: failed to map segment from shared object"),
            "error: not enough memory: free some, or choose a smaller model or batch: lib.so: failed to map segment from "
            "shared object\n",
        ),
        (MemoryError(), "error: not enough memory: free some, or choose a smaller model or batch\n"),
        (
            MemoryError("Unable to allocate 9 GiB"),
            "error: not enough memory: free some, or choose a smaller model or batch: Unable to allocate 9 GiB\n",
        ),
    ],
)
def test_mistakes_and_interrupts_in_the_work_are_one_line_too(parse, mistake, message, monkeypatch):
    def fail(main, flags_parser):
        raise mistake

    monkeypatch.setattr(app.os, "_exit", sys.exit)
    assert parse(run=fail) == (2 if message.startswith("error") else 130, message)


def test_terminals_that_cannot_show_a_character_get_an_escape():
    program = "from knnprompt_jax import app, options\napp.Flags(options.Options).run(lambda: print('caf\\u00e9'))"
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "caf\\xe9\n"), done.stderr


CLOSED = """
import os
from knnprompt_jax import app, options
def work():
    with open("first.txt", "w") as file:
        os.write(2, b"a library's warning")
        print(file.fileno() > 2)
app.Flags(options.Options).run(work)
"""


def test_a_file_never_gets_the_number_of_a_closed_stream(tmp_path):
    """Otherwise the warnings of a library would be written into it."""
    command = ["bash", "-c", 'exec "$0" -c "$1" <&- 2>&-', sys.executable, CLOSED]
    environment = os.environ | {"PYTHONPATH": str(pathlib.Path(app.__file__).parents[1])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stdout, (tmp_path / "first.txt").read_text()) == (0, "True\n", "")


def make_unread_pipe() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


SPEAKING = """
import sys
from knnprompt_jax import app, errors, options
def work():
    print("a message", file=sys.stderr, flush=True)
    print("done", flush=True)
    if sys.argv.pop() == "wrong":
        raise errors.UserError("a mistake")
kind = sys.argv.pop()
app.Flags(options.Options).run(lambda: (sys.argv.append(kind), work()))
"""


@pytest.mark.parametrize(("kind", "status"), [("right", 0), ("wrong", 2)])
@pytest.mark.parametrize(
    "make",
    [
        make_unread_pipe,
        lambda: os.open("/dev/full", os.O_WRONLY),
        lambda: os.open(os.devnull, os.O_RDONLY),  # A shell's script may get descriptor 2.
    ],
    ids=["unread", "full", "read-only"],
)
def test_a_command_goes_on_without_standard_error(make, kind, status):
    """Its status is that of its work."""
    number = make()
    try:
        done = subprocess.run(
            [sys.executable, "-c", SPEAKING, kind], stdout=subprocess.PIPE, stderr=number, text=True, check=False
        )
    finally:
        os.close(number)
    assert (done.returncode, done.stdout) == (status, "done\n")


def test_a_pipe_that_lost_its_reader():
    reader, writer = os.pipe()
    assert not app._has_lost_reader(writer)
    os.close(reader)
    assert app._has_lost_reader(writer)
    os.close(writer)


@pytest.mark.parametrize(("is_unread", "status"), [(True, 0), (False, 2)])
def test_only_a_standard_output_without_reader_ends_a_command_quietly(parse, is_unread, status, monkeypatch):
    def fail(main, flags_parser):
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(app, "_has_lost_reader", lambda number: is_unread)
    assert parse(run=fail) == (status, "" if is_unread else "error: Broken pipe\n")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--helpfull"]])
def test_a_closed_standard_output_is_named(parse, arguments, monkeypatch):
    def run(main, flags_parser):
        flags_parser(sys.argv)
        main(sys.argv)

    monkeypatch.setattr(app, "reserve_streams", lambda: monkeypatch.setattr(sys, "stdout", None))
    status, printed = parse(*arguments, run=run)
    assert (status, printed) == (2, "error: standard output is closed: redirect it to a file or to /dev/null\n")


STOPPED = """
import signal, sys, time
from knnprompt_jax import app, options
def work():
    app.note_finished("7 rows are finished")
    print("ready", flush=True)
    if sys.argv.pop() == "busy":
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            while True:  # As if in a long call.
                pass
    time.sleep(60)
signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell starts background jobs without it.
kind = sys.argv[1]
del sys.argv[1]
app._GRACE_SECONDS = 0.5
app.Flags(options.Options).run(lambda: (sys.argv.append(kind), work()))
"""


@pytest.mark.parametrize(
    ("kind", "sent"), [("idle", signal.SIGTERM), ("idle", signal.SIGINT), ("busy", signal.SIGTERM)]
)
def test_a_signal_ends_a_command_with_one_line(kind, sent):
    """A command that does not react is ended too."""
    process = processes.start("-c", STOPPED, kind)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(sent)
    _, told = processes.finish(process, 128 + sent)
    assert told == "interrupted; 7 rows are finished; run the same command again\n"


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("dev/null", "", False),
        ("dev/vfio/vfio", "", False),
        ("dev/vfio/0", "", True),
        ("dev/accel0", "", True),
        ("dev/nvidia0", "", True),
        ("sys/bus/pci/devices/0000:00:04.0/vendor", "0x1ae0\n", True),
        ("sys/bus/pci/devices/0000:00:04.0/vendor", "0x1af4\n", False),
    ],
)
def test_a_machine_without_an_accelerator_is_recognised(tmp_path, monkeypatch, file, content, expected):
    monkeypatch.setattr(app.importlib.util, "find_spec", lambda name: None)
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(content)
    assert app._may_have_accelerator(tmp_path) == expected
