"""The progress of a pass over prompts, with prompts/s and the remaining time: a bar on a terminal, otherwise lines."""

import contextlib
import contextvars
import functools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import tqdm

from knnprompt_jax.common import errors, parallel

Progress = Callable[[int, int], None]
"""A function that is called with the numbers of prompts and suffix tokens since its last call.

A pass calls it for the cached prompts, and after each compiled call of several steps."""

SECONDS = 10.0  # Between lines.
_WHOLE: contextvars.ContextVar[Progress | None] = contextvars.ContextVar("whole", default=None)


class _Lines:
    """Standard error that is not a terminal: each redrawn bar becomes a line."""

    def write(self, text: str) -> None:
        if line := text.strip():
            note(line)

    def flush(self) -> None:
        """Do nothing: each line is flushed."""


def note(text: str) -> None:
    """Print a line on standard error in process 0; a closed pipe (`2>&1 | head -1`) is no error."""
    if parallel.is_main():
        with contextlib.suppress(BrokenPipeError):
            print(errors.printable(text), file=sys.stderr, flush=True)


@contextlib.contextmanager
def bar(total: int | None, title: str = "", unit: str = "prompt") -> Iterator[Progress]:
    """Show the progress of `total` prompts on standard error, and yield the function that advances it.

    A bar with a title disappears when it is full. Without a terminal, a line appears every ten
    seconds. Within `whole`, that bar advances instead.
    """
    if outer := _WHOLE.get():
        yield outer
        return
    with _display(total, title, unit) as display:
        yield functools.partial(_advance, display, [0, 0], 1)


@contextlib.contextmanager
def whole(total: int | None, unit: str, prompts_per_unit: int = 1) -> Iterator[Callable[[int], None]]:
    """Show one bar for many passes, and yield the function that sets it to the number of finished units."""
    with _display(total, "", unit) as display:

        def settle(finished: int) -> None:
            display.update(finished - display.n)

        token = _WHOLE.set(functools.partial(_advance, display, [0, 0], prompts_per_unit))
        try:
            yield settle
        finally:
            _WHOLE.reset(token)


def _advance(display: tqdm.tqdm, counts: list[int], prompts_per_unit: int, prompts: int, suffix_tokens: int) -> None:
    """Advance a bar; `counts` has the suffix tokens so far, and the prompts of units that are not finished."""
    counts[0] += suffix_tokens
    finished, counts[1] = divmod(counts[1] + prompts, prompts_per_unit)
    if counts[0]:  # Bars that count other things, such as training steps, have no tokens.
        rate = counts[0] / max(1e-9, display.format_dict["elapsed"])
        display.set_postfix_str(f"{rate:,.0f} suffix tokens/s", refresh=False)
    display.update(finished)


def _display(total: int | None, title: str, unit: str) -> tqdm.tqdm:
    options: dict[str, Any]
    if sys.stderr.isatty():
        columns, lines = os.get_terminal_size(sys.stderr.fileno())  # 0 if the terminal has no size.
        options = {"leave": not title, "ncols": (columns or 80) - 1, "nrows": lines or 24, "smoothing": 0.1}
    else:
        options = {"leave": False, "ascii": True, "file": _Lines()}
        options |= {"delay": SECONDS, "mininterval": SECONDS, "miniters": 1}
    return tqdm.tqdm(total=total, desc=title or None, unit=unit, disable=not parallel.is_main(), **options)
