"""The exception for users' mistakes."""

import re

_LONGEST = 400  # Characters of a word in a message; longer than any valid file name.


class UserError(ValueError):
    """A user's mistake, explained in one line: the value, the place and the choices.

    Any other exception of the package is a bug. Binaries print this error without a traceback and exit with status 2.
    """

    def __init__(self, message: str):
        super().__init__(shortened(message))


class EmptyCell(UserError):
    """A row's text or label is missing."""


def shortened(message: str) -> str:
    """Return the message with the middle of words of at least 400 characters left out."""
    return re.sub(rf"\S{{{_LONGEST},}}", lambda word: f"{word[0][:100]}…{word[0][-50:]}", message)
