"""Commands as documents show them, run in this process: an interpreter per command would import JAX and compile again.

As a program, this module reads commands by name as JSON, and writes what they printed.
"""

import contextlib
import io
import json
import pathlib
import runpy
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence

import absl.app
import pytest
from absl import flags

from knnprompt_jax.cli import console

ROOT = pathlib.Path(__file__).resolve().parents[1]


class Printed(io.TextIOWrapper):
    """Standard output in memory, to which programs write text and bytes."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", errors="backslashreplace", write_through=True)

    def getvalue(self) -> str:
        return self.buffer.getvalue().decode()


@contextlib.contextmanager
def started(arguments: Sequence[str], run: Callable) -> Iterator[Printed]:
    """Replace `absl.app.run` and `sys.argv`; yield the printed text. Newly defined flags are removed at the end."""
    known, printed = set(flags.FLAGS), Printed()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
    ):
        patch.setattr(absl.app, "run", run)
        patch.setattr(sys, "argv", list(arguments))
        patch.setitem(sys.modules, "__main__", sys.modules["__main__"])
        try:
            yield printed
        finally:
            for flag in set(flags.FLAGS) - known:
                delattr(flags.FLAGS, flag)


def run(command: str) -> str:
    """Return what a line of the shell prints; raise AssertionError with its output if it fails."""
    words = shlex.split(command, comments=True)
    program, *arguments = words
    argv = words if program == "knnprompt" else arguments
    with started(argv, lambda main, flags_parser: main(flags_parser(sys.argv))) as printed:
        try:
            if program == "knnprompt":
                console.main()
            elif arguments[0] == "-c":
                exec(arguments[1], {})
            elif arguments[:2] == ["-m", "pytest"]:
                assert pytest.main(arguments[2:]) == 0, printed.getvalue()
            else:
                assert program == "python"
                runpy.run_path(str(ROOT / arguments[0]), run_name="__main__")
        except SystemExit as stop:
            assert not stop.code, f"{command}\n{printed.getvalue()}"
    return printed.getvalue()


if __name__ == "__main__":
    given = json.load(sys.stdin)
    print(json.dumps({name: "".join(map(run, lines)) for name, lines in given.items()}))
