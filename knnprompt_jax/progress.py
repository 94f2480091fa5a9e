"""How far a pass over prompts has come, with prompts/s and the time left: a bar on a terminal, elsewhere a line now and then."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import tqdm

from knnprompt_jax import parallel

Progress = Callable[[int, int], None]
"""Called after each call into the device with the prompts and suffix tokens done since the last."""

SECONDS = 30.0  # Between lines.


class _Lines:
    """Standard error where it is no terminal: what a bar redraws becomes lines."""

    def write(self, text: str) -> None:
        if line := text.strip():
            sys.stderr.write(f"{line}\n")

    def flush(self) -> None:
        sys.stderr.flush()


@contextlib.contextmanager
def bar(total: int | None, title: str = "", unit: str = "prompt") -> Iterator[Progress]:
    """Shows `total` prompts on standard error and yields what `LanguageModel.states` calls.

    A bar with a title, one of many, goes away when it is full. Without a terminal there is a line every half minute.
    """
    with tqdm.tqdm(total=total, unit=unit, disable=not parallel.is_main(), **_look(title)) as shown:
        tokens = 0

        def report(prompts: int, suffix_tokens: int) -> None:
            nonlocal tokens
            tokens += suffix_tokens
            if tokens:  # Not where a bar counts other things, as the steps of a training.
                rate = tokens / max(1e-9, shown.format_dict["elapsed"])
                shown.set_postfix_str(f"{rate:,.0f} suffix tokens/s", refresh=False)
            shown.update(prompts)

        yield report


def _look(title: str) -> dict[str, Any]:
    """tqdm's options."""
    if sys.stderr.isatty():
        return {"desc": title or None, "leave": not title, "dynamic_ncols": True, "smoothing": 0.1}
    every = {"delay": SECONDS, "mininterval": SECONDS, "miniters": 1}
    return {"desc": title or None, "leave": False, "ascii": True, "ncols": 100, "file": _Lines(), **every}
