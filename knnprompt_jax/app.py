"""The flags of a binary, and how it starts: a user's mistake is one line on standard error and exit status 2."""

import contextlib
import difflib
import functools
import importlib.util
import io
import logging as standard_logging
import os
import pathlib
import re
import runpy
import select
import shutil
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, NoReturn, TypeVar

import absl.app
from absl import flags, logging

from knnprompt_jax import compilation_cache, errors, files, options

Kind = TypeVar("Kind", bound=options.Options)
_HELP = ("--help", "-help", "-h")
_FULL_HELP = ("--helpfull", "-helpfull")
_STOPPING = (signal.SIGINT, signal.SIGTERM)
_GRACE_SECONDS = 3.0  # From a signal to the end of a process that does not react.
_FINISHED: list[str] = []  # The text of `note_finished`.
_ACCELERATORS = ("dev/accel*", "dev/vfio/[0-9]*", "dev/nvidia*", "dev/dxg", "dev/kfd")  # Files of TPUs and GPUs.
_GOOGLE = "0x1ae0"  # The vendor of TPUs on the PCI bus.
_PACKAGE = pathlib.Path(__file__).parent


class Flags(Generic[Kind]):
    """The options of a binary as absl flags: `--name=value`, and `--group.name=value` for the options of a group."""

    def __init__(self, kind: type[Kind], config: str = "", keeps_programs: bool = True):
        """Define the flags.

        Args:
            kind: the class of the options.
            config: the default of `--config=FILE.py`, if the binary has that flag. The file's `get_config()` returns
                options of `kind` or of a subclass. Their values are the defaults of the flags.
            keeps_programs: whether compiled programs are kept for later runs (`compilation_cache`); False where
                compilation is measured.
        """
        self.kind = kind
        self._config: Mapping[str, Any] = {}
        if config:
            with one_line_errors():
                given = _read_config(config, kind)
            self.kind = type(given)
            self._config = options.flattened(given.to_dict())
        self._keeps_programs = keeps_programs
        for name, default, declared in options.declarations(self.kind):
            choices = f" One of {', '.join(declared['choices'])}." if declared["choices"] else ""
            flag = flags.Flag(
                _Text(),
                None,
                name,
                self._config.get(name, default),
                declared["help"] + choices,
                boolean=declared["is_boolean"],
                allow_overwrite=False,
            )
            flags.DEFINE_flag(flag, module_name=sys.argv[0])

    @functools.cached_property
    def value(self) -> Kind:
        """The options, after `check_values`."""
        return self._from_flags()

    def check_values(self) -> None:
        """Raise UserError if a value is not allowed."""
        self._from_flags()

    def run(self, main: Callable[[], None]) -> None:
        """Parse the command line, check the options and call `main`, the work of the binary.

        `--help` prints the docstring of the binary and its flags, without those of hidden groups; `--helpfull` prints
        all flags.
        """

        def parse(argv: Sequence[str]) -> list[str]:
            if {*_HELP, *_FULL_HELP}.intersection(argv):
                _check_standard_output()
                flags.FLAGS([argument for argument in argv if argument not in (*_HELP, *_FULL_HELP)])
                docstring = sys.modules[main.__module__].__doc__ or ""
                _print_help(argv[0], docstring, self.kind, is_full=bool({*_FULL_HELP}.intersection(argv)))
                sys.exit()
            try:
                rest = flags.FLAGS(argv)
            except ValueError as error:  # absl raises it for --noNAME=VALUE.
                raise errors.UserError(str(error)) from error
            if len(rest) > 1:
                raise errors.UserError(f"unexpected argument {rest[1]!r}: write options as --name=value")
            self.check_values()
            return rest

        def start(argv: Sequence[str]) -> None:
            del argv
            for stream in (sys.stdout, sys.stderr):
                if isinstance(stream, io.TextIOWrapper):
                    stream.reconfigure(errors="backslashreplace")  # A terminal may not be able to show every label.
            logging.set_verbosity(min(logging.get_verbosity(), logging.WARNING))
            logging.get_absl_handler().setFormatter(_Formatter("%(levelname)s: %(message)s"))
            if self._keeps_programs:
                compilation_cache.use()
            self.value.check_names()
            if self.value.prints:
                _check_standard_output()
            if importlib.util.find_spec("libtpu") and not _may_have_accelerator(pathlib.Path("/")):
                # Without a TPU, libtpu prints errors before JAX chooses the CPU.
                os.environ.setdefault("JAX_PLATFORMS", "cpu")
            main()
            print(end="", flush=True)

        reserve_streams()
        with _interruptible(), one_line_errors():
            absl.app.run(start, flags_parser=parse)

    def _from_flags(self) -> Kind:
        names = [name for name, _, _ in options.declarations(self.kind)]
        given = {name: flags.FLAGS[name].value for name in names if flags.FLAGS[name].present}
        return options.from_config(self.kind, {**self._config, **given}, prefix="--")


def show(text: str) -> None:
    """Print text on standard output, with control characters escaped: it may contain labels from files."""
    print(errors.printable(text), flush=True)


def note_finished(text: str) -> None:
    """Set what the line of an interrupted command says is finished."""
    _FINISHED[:] = [f" {text};"]


def reserve_streams() -> None:
    """Open the null device for each standard stream that is closed, as services and cron jobs leave them.

    Otherwise a file that is opened later would get the stream's number, and libraries would print into it.
    `sys.stdin` and `sys.stdout` stay None, so that commands which need them can say so. What standard error refuses is
    discarded: a command goes on without its messages.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # The lowest free number.
    if sys.stderr is sys.__stderr__:
        encoding = "utf-8" if sys.stderr is None else sys.stderr.encoding
        buffer = io.BufferedWriter(_Discarding(2, "w", closefd=False))
        sys.stderr = io.TextIOWrapper(buffer, encoding, "backslashreplace", line_buffering=True)


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Print a user's mistake in one line and exit with status 2."""
    try:
        yield
    except flags.UnrecognizedFlagError as error:
        names = [flag.name for flag in flags.FLAGS.get_key_flags_for_module(sys.argv[0])]
        near = [name for name in names if name.endswith(f".{error.flagname}")]
        near = near or difflib.get_close_matches(error.flagname, names)
        suggestion = f"did you mean --{near[0]}? " if near else ""
        _fail(f"unknown option --{error.flagname}: {suggestion}--help lists them")
    except flags.Error as error:
        _fail(str(error))
    except errors.UserError as error:
        _fail(str(error))
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _has_lost_reader(1):  # `head` closes our standard output.
            _end(0)
        _fail(files.refusal(error))
    except (MemoryError, RuntimeError, ImportError) as error:
        if not errors.is_out_of_memory(error):
            raise
        detail = f": {str(error).splitlines()[0]}" if str(error) else ""
        _fail(f"not enough memory: free some, or choose a smaller model or batch{detail}")
    except KeyboardInterrupt as stop:
        _end_interrupted(stop.args[0] if stop.args else signal.SIGINT)


class _Discarding(io.FileIO):
    """A file that discards what cannot be written: it has no reader, its disk is full, or it is open for reading."""

    def write(self, content: Any, /) -> int:
        try:
            return super().write(content)
        except OSError:
            return memoryview(content).nbytes


class _Text(flags.ArgumentParser):
    """Keep every value as it was typed; `options` converts and checks it."""

    def parse(self, argument: Any) -> Any:
        return argument


def _read_config(default: str, kind: type[Kind]) -> Kind:
    """Define `--config` and return the options of the file that it names.

    Raises:
        UserError: there is no such file, or its `get_config()` fails or returns no options of `kind`.
    """
    text = "Python file whose get_config() returns the values that are the defaults of the options below."
    early = flags.FlagValues()  # The file decides which other flags there are.
    early.set_gnu_getopt(True)
    flags.DEFINE_string("config", default, text, early)
    flags.DEFINE_string("config", default, text, module_name=sys.argv[0], allow_overwrite=False)
    early(sys.argv, known_only=True)
    file = str(early["config"].value)
    paths = (folder / file for folder in (pathlib.Path(), _PACKAGE, _PACKAGE.parent))
    path = next(filter(pathlib.Path.is_file, paths), None)
    if path is None:
        raise errors.UserError(f"--config={file}: no such file")
    try:
        given = runpy.run_path(str(path))["get_config"]()
    except errors.UserError as error:
        raise errors.UserError(f"--config={file}: {error}") from error
    except Exception as error:
        reason = str(error).splitlines() or [""]
        raise errors.UserError(f"--config={file}: {type(error).__name__}: {reason[-1]}") from error
    if not isinstance(given, kind):
        raise errors.UserError(f"--config={file}: get_config() must return {kind.__name__} or a subclass of it")
    return given


class _Formatter(standard_logging.Formatter):
    def format(self, record: standard_logging.LogRecord) -> str:
        return errors.printable(super().format(record))


def _print_help(binary: str, docstring: str, kind: type[options.Options], is_full: bool) -> None:
    """Print what a binary does, then under headings the flags with their values; equal help texts are printed once.

    Flags of the groups that `kind` hides are printed only if `is_full`.
    """
    if binary.startswith("knnprompt "):
        docstring = re.sub(r"python experiments/(\w+)\.py", r"knnprompt \1", docstring)
    hidden = set() if is_full else set(kind.FURTHER)
    headings = {name: declared["heading"] for name, _, declared in options.declarations(kind)}
    sections: dict[str, dict[str, list[str]]] = {}
    for flag in flags.FLAGS.get_key_flags_for_module(binary):
        if flag.name not in hidden and flag.name.partition(".")[0] not in hidden:
            section = sections.setdefault(headings.get(flag.name, "What to run"), {})
            section.setdefault(flag.help or "", []).append(f"--{flag.name}={_text_of(flag.value)}")
    fill = functools.partial(
        textwrap.fill,
        width=min(100, shutil.get_terminal_size((100, 24)).columns),
        break_long_words=False,
        break_on_hyphens=False,
    )
    print(docstring)
    for heading, section in sections.items():
        print(f"\n{heading}\n")
        for text, names in section.items():
            print(fill("  ".join(names), initial_indent="  ", subsequent_indent="  "))
            print(fill(text, initial_indent=" " * 6, subsequent_indent=" " * 6))
    if hidden:
        print("\n--helpfull lists all options.")
    print(end="", flush=True)


def _text_of(value: Any) -> str:
    """Return the value of a flag as a user would write it."""
    if value is None:
        return ""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _check_standard_output() -> None:
    if sys.stdout is None:
        raise errors.UserError("standard output is closed: redirect it to a file or to /dev/null")


def _may_have_accelerator(root: pathlib.Path) -> bool:
    """Return whether a machine's files show an accelerator, or JAX has a plugin for one."""
    if "JAX_FORCE_TPU_INIT" in os.environ or importlib.util.find_spec("jax_plugins"):
        return True
    if any(next(root.glob(pattern), None) for pattern in _ACCELERATORS):
        return True
    for vendor in root.glob("sys/bus/pci/devices/*/vendor"):
        with contextlib.suppress(OSError):
            if vendor.read_text().strip() == _GOOGLE:
                return True
    return False


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGINT and SIGTERM end the process with one line, at the latest after `_GRACE_SECONDS`.

    Python raises KeyboardInterrupt only between two of its instructions, and a call into XLA may last minutes.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def stop(number: int, frame: Any) -> NoReturn:
        raise KeyboardInterrupt(number)

    def watch() -> None:
        number = os.read(reader, 1)  # Empty when the writer is closed.
        if number:
            time.sleep(_GRACE_SECONDS)
            _end_interrupted(number[0])

    handled = [number for number in _STOPPING if signal.getsignal(number) != signal.SIG_IGN]  # nohup ignores some.
    earlier = {number: signal.signal(number, stop) for number in handled}
    earlier_writer = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(earlier_writer)
        for number, handler in earlier.items():
            signal.signal(number, handler)
        os.close(writer)
        watcher.join()
        os.close(reader)


def _end_interrupted(number: int) -> NoReturn:
    print(f"interrupted;{''.join(_FINISHED)} run the same command again", file=sys.stderr, flush=True)
    with contextlib.suppress(OSError):
        print(end="", flush=True)
    os._exit(128 + number)  # Threads of XLA still compute, and may crash while Python ends.


def _has_lost_reader(number: int) -> bool:
    """Return whether the descriptor `number` is a pipe or socket that nobody reads."""
    poll = select.poll()
    poll.register(number, 0)  # Errors are reported unasked.
    return bool(poll.poll(0))


def _fail(message: str) -> NoReturn:
    print(f"error: {' '.join(errors.shortened(message).split())}", file=sys.stderr)
    _end(2)


def _end(status: int) -> NoReturn:
    try:
        print(end="", flush=True)
    except OSError:  # Python would flush once more at its end, and print another error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)
