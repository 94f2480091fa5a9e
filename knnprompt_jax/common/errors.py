"""The exception for users' mistakes, and parts of its messages: text that is safe to print, repeated values."""

import collections
import contextlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

# Control characters, line separators and changes of direction.
_CONTROL = re.compile("[\0-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
# In the errors of XLA, of PyTorch, of Python's threads and of the loader of shared libraries.
_NO_MEMORY = re.compile("RESOURCE_EXHAUSTED|out of memory|start new thread|failed to map segment|allocate memory", re.I)
_MAX_WORD = 400  # Characters of a word in a message; longer than any valid file name.
_MAX_NAMES = 50  # Names in a message.


class UserError(ValueError):
    """A user's mistake, explained in one line: the value, the place and the choices.

    Any other exception of the package is a bug. Binaries print this error without a traceback and exit with status 2.
    """

    def __init__(self, message: str):
        super().__init__(shortened(message))


class Busy(UserError):
    """Another process or thread holds a lock."""


class EmptyCell(UserError):
    """A row's text or label is missing."""


@contextlib.contextmanager
def prefixed(place: str) -> Iterator[None]:
    """Let the message of a UserError begin with its place."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{place}: {error}") from None


@contextlib.contextmanager
def tokenizer_failures(place: str) -> Iterator[None]:
    """Turn a failure of `tokenizers` into UserError: a plain Exception, or a panic of its Rust code.

    A panic is no Exception but a BaseException, whose class cannot be imported.
    """
    try:
        yield
    except BaseException as error:
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        reason = (str(error) or "a panic").splitlines()[0]
        if "ThreadPoolBuildError" in reason:
            raise MemoryError(reason) from None
        raise UserError(f"{place}: {reason}") from None


def is_out_of_memory(error: Exception) -> bool:
    """Return whether the error means that the host or a device is out of memory."""
    return isinstance(error, MemoryError) or _NO_MEMORY.search(str(error)) is not None


def one_line(error: Exception) -> str:
    """Return the error's message in one line; if it is empty, the error's type."""
    return " ".join(str(error).split()) or type(error).__name__


def shortened(message: str) -> str:
    """Return the message, printable, without the middle of words of at least 400 characters."""
    return re.sub(rf"\S{{{_MAX_WORD},}}", lambda word: f"{word[0][:100]}…{word[0][-50:]}", printable(message))


def printable(text: str, kept: str = "\n\t") -> str:
    r"""Return the text with escapes such as \x1b for all characters that act on a terminal, except those to keep."""
    return _CONTROL.sub(lambda found: found[0] if found[0] in kept else ascii(found[0])[1:-1], text)


def repeated(values: Iterable[Any]) -> list[Any]:
    """Return the values that occur more than once, each of them once."""
    return [value for value, count in collections.Counter(values).items() if count > 1]


def join_names(names: Iterable[Any]) -> str:
    """Return names separated by commas, for a message; a list of more than 50 names is cut."""
    names = [printable(str(name), kept="") for name in names]
    joined = ", ".join(names[:_MAX_NAMES]) or "none"
    return joined if len(names) <= _MAX_NAMES else f"{joined}, … ({len(names)} in all)"
