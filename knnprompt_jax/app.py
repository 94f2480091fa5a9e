"""How every binary starts: a user's mistake is one line on standard error and exit status 2, never a traceback."""

import pathlib
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import absl.app
from absl import flags, logging
from ml_collections import config_flags

from knnprompt_jax import errors

# ml_collections reports an unknown --config.name as an AttributeError or KeyError, a missing file as an OSError.
_FLAG_ERRORS = (flags.Error, AttributeError, KeyError, OSError, TypeError, ValueError)
_OPTION = re.compile(r"^ {4}config\.(?P<name>[\w.]+) = (?P<default>.*?)(?:  # (?P<comment>.*))?$", re.MULTILINE)


def config_flag(binary: str, name: str, base: str = "") -> Any:
    """Defines --config with a file of configs/ as its default; --help lists the file's options with their comments.

    `base` is the file, from the project's root, with the options that the config adds to.
    """
    root = pathlib.Path(binary).resolve().parents[1]
    path = root / "configs" / name
    options = [
        f"  --config.{option['name']}={option['default']}  {option['comment'] or ''}"
        for option in [*(_options(root / base) if base else ()), *_options(path)]
    ]
    help_text = "\n".join([f"Config file. The options of {name} and their defaults:", *options])
    try:
        holder = config_flags.DEFINE_config_file("config", str(path), help_text)
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flags.FLAGS["config"])
        return holder
    except _FLAG_ERRORS as error:  # This flag reads the command line already when it is defined.
        _fail(f"unknown or impossible --config option: {_text(error)}; --help lists them")


def run(main: Callable[[], None]) -> None:
    """Parses the flags and calls `main`."""

    def parse(argv: Sequence[str]) -> list[str]:
        try:
            rest = flags.FLAGS(argv)
            if "config" in flags.FLAGS:
                flags.FLAGS.config.items()  # A file that could not be read shows on first use only.
        except _FLAG_ERRORS as error:
            _fail(_text(error))
        if len(rest) > 1:
            _fail(f"unexpected argument {rest[1]!r}: options are written --name=value")
        return rest

    def guarded(argv: Sequence[str]) -> None:
        logging.set_verbosity(min(logging.get_verbosity(), logging.WARNING))
        try:
            main()
        except errors.UserError as error:
            _fail(str(error))
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            sys.exit(130)

    absl.app.run(guarded, flags_parser=parse)


def _options(path: pathlib.Path) -> list[re.Match[str]]:
    return list(_OPTION.finditer(path.read_text(encoding="utf-8")))


def _text(error: BaseException) -> str:
    while error.args and isinstance(error.args[0], BaseException):
        error = error.args[0]
    return str(error.args[0]) if error.args and not isinstance(error, OSError) else str(error)


def _fail(message: str) -> NoReturn:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)
