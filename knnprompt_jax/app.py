"""How every binary starts: a user's mistake is one line on standard error and exit status 2, never a traceback."""

import ast
import contextlib
import functools
import logging as standard_logging
import operator
import os
import pathlib
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, NoReturn, TypeVar

import absl.app
from absl import flags, logging
from ml_collections import config_flags
from ml_collections.config_flags import tuple_parser

from knnprompt_jax import compilation_cache, errors, files, options

Kind = TypeVar("Kind", bound=options.Options)
_HELP = ("--help", "-help", "-h")


class Config(Generic[Kind]):
    """The flag --config: a file of options, each of which the command line may give another value."""

    of_binary: ClassVar["Config | None"] = None

    def __init__(self, binary: str, name: str, kind: type[Kind] | Callable[[Any], type[Kind]]):
        """`name` is the file of configs/ that the binary takes by default; `kind` declares its options, or finds them by the config."""
        Config.of_binary, self._kind = self, kind
        self.path = str(pathlib.Path(binary).resolve().parents[1] / "configs" / name)
        with _mistakes_in_one_line():  # This flag reads the command line already when it is defined.
            self._holder = config_flags.DEFINE_config_file(
                "config", self.path, "Config file; --help lists its options."
            )

    @property
    def loose(self) -> Any:
        """The values before they are checked; raises OSError where the file could not be read."""
        config = self._holder.value
        config.items()
        return config

    @functools.cached_property
    def kind(self) -> type[Kind]:
        """The declaration of the options."""
        return self._kind if isinstance(self._kind, type) else self._kind(self.loose)

    def may_have(self, name: str) -> bool:
        """Whether there is an option of that name; known before the command line is read, unless the config says which there are."""
        return isinstance(self._kind, type) and name in (listed for listed, _, _ in options.listed(self._kind))

    @functools.cached_property
    def value(self) -> Kind:
        """The options; raises UserError on a value that is refused."""
        return options.from_config(self.kind, self.loose)


class Flags(Generic[Kind]):
    """Options as flags of their own, --name=value, for a binary without a config."""

    of_binary: ClassVar["Flags | None"] = None

    def __init__(self, kind: type[Kind]):
        Flags.of_binary, self.kind = self, kind
        for name, default, declared in options.listed(kind):
            if isinstance(default, bool):
                flag = flags.BooleanFlag(name, default, told(declared))
                flag.parser = _TrueOrFalse()
                flags.DEFINE_flag(flag, module_name=sys.argv[0])
            else:
                parsers: dict[type, flags.ArgumentParser] = {str: flags.ArgumentParser(), tuple: _Several()}
                parser = parsers.get(type(default), _Value())
                flags.DEFINE(parser, name, default, told(declared), module_name=sys.argv[0])

    @functools.cached_property
    def value(self) -> Kind:
        """The options; raises UserError on a value that is refused."""
        config = options.config_of(self.kind)
        for name, _, _ in options.listed(self.kind):
            config.update_from_flattened_dict({name: flags.FLAGS[name].value})
        return options.from_config(self.kind, config, prefix="--")


class _TrueOrFalse(flags.BooleanParser):
    """True or False, or what is neither as text."""

    def parse(self, argument: Any) -> Any:
        try:
            return super().parse(argument)
        except ValueError:
            return argument


class _Value(flags.ArgumentParser):
    """A number, True or False, or what is neither as text: `options` says what is possible."""

    def parse(self, argument: Any) -> Any:
        return _literal(argument)


class _Several(tuple_parser.TupleParser):
    """Several values, written as (1, 2), as 1,2 or as texts with commas between them, or given one by one."""

    def parse(self, argument: Any) -> tuple:
        if isinstance(argument, list):
            return tuple(value for each in argument for value in self.parse(each))
        value = _literal(argument)
        if isinstance(value, str):
            return tuple(text.strip() for text in value.split(",") if text.strip())
        return tuple(value) if isinstance(value, list | tuple) else (value,)


for _type, _parser in {int: _Value(), float: _Value(), bool: _Value(), tuple: _Several()}.items():
    config_flags.register_flag_parser_for_type(_type, _parser)


def _literal(argument: Any) -> Any:
    if isinstance(argument, str):
        with contextlib.suppress(SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
            return ast.literal_eval(argument.capitalize() if argument in ("true", "false") else argument)
    return argument


def run(main: Callable[[], None], keep_programs: bool = True) -> None:
    """Parses the flags and calls `main`; --help lists them, and the options of the config where there is one.

    What is compiled is kept for later runs (`compilation_cache`), but where compiling is what is measured.
    """

    def parse(argv: Sequence[str]) -> list[str]:
        if not {*_HELP}.isdisjoint(argv):
            _show_help(Config.of_binary, argv)
        with _mistakes_in_one_line():
            rest = flags.FLAGS(argv)
            if len(rest) > 1:
                _fail(f"unexpected argument {rest[1]!r}: options are written --name=value{_example(rest[1])}")
            for declared in (Config.of_binary, Flags.of_binary):
                if declared:
                    declared.value  # noqa: B018 (raises)
        return rest

    def guarded(argv: Sequence[str]) -> None:
        logging.set_verbosity(min(logging.get_verbosity(), logging.WARNING))
        logging.get_absl_handler().setFormatter(standard_logging.Formatter("%(levelname)s: %(message)s"))
        if keep_programs:
            compilation_cache.use()
        main()
        with files.refusals(pathlib.Path("standard output")):
            print(end="", flush=True)

    try:
        absl.app.run(guarded, flags_parser=parse)
    except errors.UserError as error:
        _fail(str(error))
    except OSError as error:
        _fail(files.refusal(error))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


def _example(argument: str) -> str:
    """How an argument is meant, perhaps: as the value of the first option that is a text without a default."""
    if not Flags.of_binary:
        return ""
    texts = [name for name, default, _ in options.listed(Flags.of_binary.kind) if default == ""]
    return f", as in --{texts[0]}={argument}" if texts else ""


def _show_help(config: Config | None, argv: Sequence[str]) -> NoReturn:
    """Prints what the binary does, then each flag and option with its value and, below it, what it means."""
    described = sys.modules["__main__"].__doc__ or ""
    if " " in argv[0]:  # As a command of `knnprompt`.
        described = re.sub(r"python experiments/\w+\.py", argv[0], described)
    entries = [described]
    with _mistakes_in_one_line():
        if config:
            flags.FLAGS([argument for argument in argv if argument not in _HELP])
            entries += _config_entries(config)
        for flag in flags.FLAGS.get_key_flags_for_module(argv[0]):
            entries.append(_entry(flag.name, "" if flag.value is None else flag.value, flag.help or ""))
    print("\n".join(entries), flush=True)
    sys.exit()


def _config_entries(config: Config) -> Iterator[str]:
    yield _entry("config", config.path, "File of the options below; the command line may give each another value.")
    for name, _, declared in options.listed(config.kind):
        yield _entry(f"config.{name}", operator.attrgetter(name)(config.loose), told(declared))


def told(declared: Mapping[str, Any]) -> str:
    """What an option means, and its choices."""
    choices = f" One of {', '.join(declared['choices'])}." if declared["choices"] else ""
    return declared["help"] + choices


def _entry(name: str, value: Any, text: str) -> str:
    shown = ",".join(map(str, value)) if isinstance(value, tuple) else value
    width, indent = min(100, shutil.get_terminal_size((100, 24)).columns), " " * 6
    wrapper = textwrap.TextWrapper(width, indent, indent, break_long_words=False, break_on_hyphens=False)
    return f"  --{name}={shown}\n{wrapper.fill(text)}"


@contextlib.contextmanager
def _mistakes_in_one_line() -> Iterator[None]:
    """For what reads the command line and config files, which may raise anything."""
    try:
        yield
    except Exception as error:
        _fail(_told(error))


def _told(error: BaseException) -> str:
    causes = [error]
    while cause := causes[-1].__cause__ or causes[-1].__context__:
        causes.append(cause)
    for cause in causes:
        if isinstance(cause, errors.UserError) and "\n" not in str(cause):  # ml_collections adds tracebacks to it.
            return str(cause)
    if error.args and isinstance(error.args[0], KeyError):  # As ml_collections has it.
        return f"unknown option: {error.args[0].args[0]}; --help lists them"
    if isinstance(error, flags.UnrecognizedFlagError):
        near = re.search(r"Did you mean: (.*) \?", str(error))
        meant = near and near[1]
        if Config.of_binary and Config.of_binary.may_have(error.flagname):
            meant = f"config.{error.flagname}"
        return f"unknown option --{error.flagname}: {f'did you mean --{meant}? ' if meant else ''}--help lists them"
    lines = str(error).splitlines()
    if isinstance(error, flags.Error):
        return " ".join(dict.fromkeys((lines[0], lines[-1])))
    given = re.search(r"-config[= ](\S+)", " ".join(sys.argv))
    file = given[1] if given else Config.of_binary and Config.of_binary.path
    return f"--config={file}: {type(error).__name__}: {lines[-1] if lines else ''}"


def _fail(message: str) -> NoReturn:
    print(f"error: {' '.join(errors.shortened(message).split())}", file=sys.stderr)
    try:
        print(end="", flush=True)
    except OSError:  # Python flushes once more at the end, and would tell of it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(2)
