"""Rows of a file or of standard input, one at a time, checked against a task."""

import dataclasses
import hashlib
import itertools
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

from knnprompt_jax import errors, files
from knnprompt_jax.tasks import formats, sources
from knnprompt_jax.tasks.task import Example, Task, listed

STANDARD = "-"
KINDS = ("csv", "tsv", "jsonl", "txt", "parquet")


@dataclasses.dataclass(frozen=True)
class Mark:
    """A place in the input: the number of rows before it, and the SHA-256 of all of them."""

    rows: int = 0
    checksum: str = hashlib.sha256().hexdigest()


@dataclasses.dataclass(frozen=True)
class MarkedRow:
    """An example, or the error of a bad row; the next row begins at `mark`."""

    example: Example | errors.UserError
    mark: Mark


def read(
    task: Task, path: str, kind: str = "", encoding: str = "utf-8", after: Mark | None = None
) -> Iterator[MarkedRow]:
    """Yield the rows, numbered from 0, including bad ones; `-` is standard input.

    Args:
      kind: one of `KINDS`; by default the ending of the file's name.
      after: the place that an earlier run reached; the rows before it are read and left out.

    Raises:
      UserError: with file and line: a file that cannot be read or decoded, a missing column, or other rows than those before
        `after`.
    """
    after, mark, digest = after or Mark(), Mark(), hashlib.sha256()
    kind = _kind(path, kind)
    for index, (place, columns) in enumerate(_parse(path, kind, encoding)):
        digest.update(_bytes(columns))
        mark = Mark(index + 1, digest.copy().hexdigest())
        if mark.rows > after.rows:
            if isinstance(columns, errors.UserError):
                yield MarkedRow(columns, mark)
                continue
            if kind == "txt" and len(task.fields) == 1:
                columns = {task.fields[0]: columns["text"]}
            if kind != "jsonl" and (missing := [field for field in task.fields if field not in columns]):
                raise errors.UserError(f"{path}: has no column {missing[0]!r}; it has {listed(columns)}")
            try:
                example = Example(sources.fields_of(task, place, columns), "", index, place, other=columns)
                yield MarkedRow(example, mark)
            except errors.UserError as error:
                yield MarkedRow(error, mark)
        elif mark.rows == after.rows and mark != after:
            break
    if mark.rows <= after.rows and mark != after:
        advice = "choose another output" + ("" if path == STANDARD else ", or --overwrite it")
        raise errors.UserError(
            f"{path}: its first {after.rows} rows are not those that were labelled already: {advice}"
        )


def begins_alike(path: str, kind: str, encoding: str, mark: Mark) -> bool:
    """Return whether the first rows of a file are those before an earlier run's mark."""
    digest, count = hashlib.sha256(), 0
    if mark.rows:
        for _, columns in itertools.islice(_parse(path, _kind(path, kind), encoding), mark.rows):
            digest.update(_bytes(columns))
            count += 1
    return Mark(count, digest.hexdigest()) == mark


def _kind(path: str, kind: str) -> str:
    return kind or pathlib.PurePath(path).suffix[1:].lower()


def _parse(path: str, kind: str, encoding: str) -> Iterator[formats.Parsed]:
    if path == STANDARD and kind not in KINDS[:-1]:
        raise errors.UserError(f"--format={kind}: for standard input, choose from {', '.join(KINDS[:-1])}")
    if not kind:
        with files.refusals(pathlib.Path(path)):
            pathlib.Path(path).stat()  # Report a missing file before its missing ending.
    if kind not in KINDS:
        raise errors.UserError(f"{path}: --format={kind}: choose from {', '.join(KINDS)}")
    if path == STANDARD:
        return _from_standard_input(f".{kind}", encoding)
    return formats.parse(pathlib.Path(path), encoding, f".{kind}")


def _from_standard_input(kind: str, encoding: str) -> Iterator[formats.Parsed]:
    count = 0
    with formats.decoding(
        encoding, lambda error: f"standard input, after row {count}: not {encoding.upper()}: {error}"
    ):
        for row in formats.TEXT_FORMATS[kind](formats.as_text(sys.stdin.buffer, encoding, kind), "standard input"):
            count += 1
            yield row


def _bytes(columns: dict[str, Any] | errors.UserError) -> bytes:
    # The error of a bad row names the file, which may change.
    return b"bad" if isinstance(columns, errors.UserError) else repr(columns).encode("utf-8", "surrogatepass")
