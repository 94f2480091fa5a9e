"""The one exception for users' mistakes."""

import re

_LONGEST = 400  # Of a word in a message: longer than the names that systems allow.


class UserError(ValueError):
    """A mistake of the user's, told in one line: the value, the place and the choices.

    Everything else that the package raises is a defect of the package. Binaries print this error without a traceback
    and exit with status 2.
    """

    def __init__(self, message: str):
        super().__init__(shortened(message))


def shortened(message: str) -> str:
    """The message; in words of more than 400 characters the middle is left out."""
    return re.sub(rf"\S{{{_LONGEST},}}", lambda word: f"{word[0][:100]}…{word[0][-50:]}", message)
