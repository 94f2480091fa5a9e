"""Rows of a file or of standard input as examples without labels, one at a time."""

import pathlib
import sys
from collections.abc import Iterator

from absl import logging

from knnprompt_jax import errors, files
from knnprompt_jax.tasks import formats, sources
from knnprompt_jax.tasks.task import Example, Task, listed

STANDARD = "-"
KINDS = ("csv", "tsv", "jsonl", "txt", "parquet")
Row = Example | errors.UserError
"""An example without a label, or the error of a bad row."""


def read(task: Task, path: str, kind: str = "", encoding: str = "utf-8", skip_bad: bool = False) -> Iterator[Row]:
    """Yield the rows, numbered from 0, and the error of a bad row in its place; `-` is standard input.

    Args:
      kind: one of `KINDS`; by default the ending of the file's name.
      skip_bad: log bad rows and leave them out.

    Raises:
      UserError: with file and line: a file that cannot be read or decoded, or a missing column.
    """
    kind = kind or pathlib.PurePath(path).suffix[1:].lower()
    for index, (place, columns) in enumerate(_parse(path, kind, encoding)):
        if isinstance(columns, dict):
            if kind == "txt" and len(task.fields) == 1:
                columns = {task.fields[0]: columns["text"]}
            if kind != "jsonl" and (missing := [field for field in task.fields if field not in columns]):
                raise errors.UserError(f"{path}: has no column {missing[0]!r}; it has {listed(columns)}")
        try:
            if isinstance(columns, errors.UserError):
                raise columns
            row = Example(sources.fields_of(task, place, columns), "", index, place, other=columns)
        except errors.UserError as error:
            if skip_bad:
                logging.warning("left out: %s", error)
            else:
                yield error
        else:
            yield row


def _parse(path: str, kind: str, encoding: str) -> Iterator[formats.Parsed]:
    if path == STANDARD and kind not in KINDS[:-1]:
        raise errors.UserError(f"--format={kind}: for standard input, choose from {', '.join(KINDS[:-1])}")
    if not kind:
        with files.refusals(pathlib.Path(path)):
            pathlib.Path(path).stat()  # Report a missing file before its missing ending.
    if kind not in KINDS:
        raise errors.UserError(f"{path}: --format={kind}: choose from {', '.join(KINDS)}")
    if path != STANDARD:
        yield from formats.parse(pathlib.Path(path), encoding, f".{kind}")
        return

    def message(error: UnicodeError) -> str:
        return f"standard input, after row {count}: not {encoding.upper()}: {error}"

    count = 0
    with formats.decoding(encoding, message):
        text = formats.as_text(sys.stdin.buffer, encoding, f".{kind}")
        for row in formats.TEXT_FORMATS[f".{kind}"](text, "standard input"):
            count += 1
            yield row
