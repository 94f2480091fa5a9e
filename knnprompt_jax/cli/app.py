"""The flags of a binary, and how it starts: a user's mistake is one line on standard error and exit status 2."""

import contextlib
import functools
import io
import logging as standard_logging
import os
import pathlib
import runpy
import shutil
import signal
import sys
import textwrap
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, NoReturn, TypeVar

import absl.app
from absl import flags, logging

from knnprompt_jax.cli import console
from knnprompt_jax.common import errors, files, options

Kind = TypeVar("Kind", bound=options.Options)
_HELP = ("--help", "-help", "-h")
_FULL_HELP = ("--helpfull", "-helpfull")


class Flags(Generic[Kind]):
    """The options of a binary as absl flags: `--name=value`, and `--group.name=value` for the options of a group."""

    def __init__(self, kind: type[Kind], config: str = "", keeps_programs: bool = True):
        """Define the flags.

        Args:
            kind: the class of the options.
            config: the default of `--config=FILE.py`, if the binary has that flag. The file's `get_config()` returns
                options of `kind` or of a subclass. Their values are the defaults of the flags.
            keeps_programs: whether compiled programs are kept for later runs (`files.keep_programs`); False where
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
        for name, _, declared in options.declarations(self.kind):
            is_boolean = declared["is_boolean"]
            flag: flags.Flag = flags.Flag(
                flags.ArgumentParser(), None, name, None, declared["help"], boolean=is_boolean, allow_overwrite=False
            )
            flags.DEFINE_flag(flag, module_name=sys.argv[0])

    @functools.cached_property
    def value(self) -> Kind:
        """The options; their values are checked."""
        names = [name for name, _, _ in options.declarations(self.kind)]
        given = {name: flags.FLAGS[name].value for name in names if flags.FLAGS[name].present}
        return options.from_config(self.kind, {**self._config, **given})

    def run(self, main: types.FunctionType) -> None:
        """Parse the command line, check the options and call `main`, the work of the binary.

        `--help` prints the docstring of the binary and its main options; `--helpfull` prints all options.
        """

        def parse(argv: Sequence[str]) -> list[str]:
            if not {*_HELP, *_FULL_HELP}.isdisjoint(argv):
                self._print_help(main.__globals__["__doc__"] or "", not {*_FULL_HELP}.isdisjoint(argv))
                sys.exit()
            try:
                rest = flags.FLAGS(argv)
            except ValueError as error:  # absl raises it for --noNAME=VALUE.
                raise flags.Error(str(error)) from error
            if len(rest) > 1:
                raise errors.UserError(f"unexpected argument {rest[1]!r}: write options as --name=value")
            return rest

        def start(argv: Sequence[str]) -> None:
            del argv
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(errors="backslashreplace")  # A terminal may not be able to show every label.
            logging.set_verbosity(min(logging.get_verbosity(), logging.WARNING))
            logging.get_absl_handler().setFormatter(standard_logging.Formatter("%(levelname)s: %(message)s"))
            if self._keeps_programs:
                files.keep_programs()
            _ = self.value  # Raises UserError before anything slow is imported.
            main()
            sys.stdout.flush()

        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with one_line_errors():
            absl.app.run(start, flags_parser=parse)

    def _print_help(self, docstring: str, is_full: bool) -> None:
        """Print what the binary does, then its options with their defaults."""
        width = min(100, shutil.get_terminal_size((100, 24)).columns)
        fill = functools.partial(textwrap.fill, width=width, break_long_words=False, break_on_hyphens=False)
        print(docstring)
        for name, default, declared in options.declarations(self.kind):
            if is_full or not {name, name.partition(".")[0]}.intersection(self.kind.FURTHER):
                choices = f" One of {', '.join(declared['choices'])}." if declared["choices"] else ""
                print(f"  --{name}={_text_of(self._config.get(name, default))}")
                print(fill(declared["help"] + choices, initial_indent=" " * 6, subsequent_indent=" " * 6))
        if self.kind.FURTHER and not is_full:
            print("\n--helpfull lists all options.")


def show(text: str) -> None:
    """Print text on standard output, with control characters escaped: it may contain labels from files."""
    print(errors.printable(text), flush=True)


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Print a user's mistake in one line and exit with status 2."""
    try:
        yield
    except BrokenPipeError:  # `head` closes our standard output, to which Python would write once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except (errors.UserError, flags.Error) as error:
        _fail(str(error))
    except OSError as error:
        _fail(files.refusal(error))
    except ValueError as error:
        if "jax" in sys.modules or "jax._src" not in sys.modules:  # Only JAX's failed import leaves just the latter.
            raise
        _fail(f"JAX does not start: {error}; correct or unset this variable of the environment")
    except (MemoryError, RuntimeError, ImportError) as error:
        if not errors.is_out_of_memory(error):
            raise
        _fail(f"not enough memory: free some, or choose a smaller model or batch: {error}")
    except KeyboardInterrupt:
        print("interrupted; run the same command again", file=sys.stderr, flush=True)
        os._exit(128 + signal.SIGINT)  # Threads of XLA still compute, and may crash while Python ends.


def _fail(message: str) -> NoReturn:
    print(f"error: {' '.join(errors.shortened(message).split())}", file=sys.stderr)
    sys.exit(2)


def _read_config(default: str, kind: type[Kind]) -> Kind:
    """Define `--config` and return the options of the file that it names.

    Raises:
        UserError: its `get_config()` returns no options of `kind`.
    """
    text = "Python file whose get_config() returns the values that are the defaults of the options below."
    flags.DEFINE_string("config", default, text, module_name=sys.argv[0], allow_overwrite=False)
    # The file decides which other flags there are, so it is read before they are parsed.
    known = flags.FlagValues()
    known.set_gnu_getopt(True)
    flags.DEFINE_string("config", default, text, flag_values=known)
    known(sys.argv, known_only=True)
    file = files.expand_home(known.config)
    shipped = console.locate(file)
    path = shipped if shipped.is_file() and not pathlib.Path(file).is_file() else file
    given = runpy.run_path(str(path))["get_config"]()
    if not isinstance(given, kind):
        raise errors.UserError(f"--config={file}: get_config() must return {kind.__name__} or a subclass of it")
    return given


def _text_of(value: Any) -> str:
    """Return the value of a flag as a user would write it."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str("" if value is None else value)
