"""A progress bar over prompts, with prompts/s and the time left."""

import contextlib
import sys
from collections.abc import Callable, Iterator

import tqdm

from knnprompt_jax import parallel

Progress = Callable[[int, int], None]
"""Called after each call into the device with the prompts and suffix tokens done since the last."""


@contextlib.contextmanager
def bar(total: int | None, title: str = "", unit: str = "prompt") -> Iterator[Progress]:
    """Shows `total` prompts on standard error (nothing where that is no terminal) and yields what `LanguageModel.states` calls.

    A bar with a title, one of many, goes away when it is full.
    """
    shows = parallel.is_main() and sys.stderr.isatty()
    look = {"desc": title or None, "leave": not title, "dynamic_ncols": True, "smoothing": 0.1}
    with tqdm.tqdm(total=total, unit=unit, disable=not shows, **look) as shown:
        tokens = 0

        def report(prompts: int, suffix_tokens: int) -> None:
            nonlocal tokens
            tokens += suffix_tokens
            shown.update(prompts)
            shown.set_postfix_str(
                f"{tokens / max(1e-9, shown.format_dict['elapsed']):,.0f} suffix tokens/s", refresh=False
            )

        yield report
