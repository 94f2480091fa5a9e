"""Rows of a file or of standard input as examples without labels, one at a time."""

import json
import pathlib
import sys
from collections.abc import Iterator

from absl import logging

from knnprompt_jax import errors, files
from knnprompt_jax.settings.commands import INPUT_KINDS, STANDARD
from knnprompt_jax.tasks import formats, sources
from knnprompt_jax.tasks.task import Example, Task, listed

Row = Example | errors.UserError
"""An example without a label, or the error of a bad row."""


def read(task: Task, path: str, kind: str = "", encoding: str = "utf-8", on_bad: str = sources.STOP) -> Iterator[Row]:
    """Yield the rows, numbered from 0, and the error of a bad row in its place; `-` is standard input.

    Args:
      kind: one of `INPUT_KINDS`; by default the ending of the file's name.
      on_bad: "skip" logs bad rows and leaves them out.

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
            if sources.is_skipped(error, task, on_bad):
                logging.warning("left out: %s", error)
            else:
                yield error
        else:
            yield row


def of_text(task: Task, text: str) -> dict[str, str]:
    """Return the fields in a text: all of it, or a JSON object if there are several fields; raise UserError if it is none."""
    if len(task.fields) == 1:
        return sources.fields_of(task, "--text", {task.fields[0]: text})
    try:
        row = {**dict.fromkeys(task.fields, ""), **json.loads(text)}
    except (ValueError, TypeError, RecursionError):
        raise errors.UserError(f"--text: give a JSON object with the fields {listed(task.fields)}") from None
    return sources.fields_of(task, "--text", row)


def _parse(path: str, kind: str, encoding: str) -> Iterator[formats.Parsed]:
    if path == STANDARD and kind not in INPUT_KINDS[:-1]:
        raise errors.UserError(f"--format={kind}: for standard input, choose from {', '.join(INPUT_KINDS[:-1])}")
    if not kind:
        with files.refusals(pathlib.Path(path)):
            pathlib.Path(path).stat()  # Report a missing file before its missing ending.
    if kind not in INPUT_KINDS:
        raise errors.UserError(f"{path}: --format={kind}: choose from {', '.join(INPUT_KINDS)}")
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
