"""Rows of a file or of standard input as examples without labels, one at a time, and in batches with their prompts."""

import concurrent.futures
import dataclasses
import json
import pathlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from absl import logging

from knnprompt_jax import errors, files, lm, parallel
from knnprompt_jax.classifier.fitted import Fitted, Queries
from knnprompt_jax.models import registry
from knnprompt_jax.settings.commands import INPUT_KINDS, STANDARD
from knnprompt_jax.tasks import formats, sources
from knnprompt_jax.tasks.task import Example, Task

Row = Example | errors.UserError
"""An example without a label, or the error of a bad row."""

_TOKEN_CHARACTERS = 4  # Characters of a token, about.
_BATCH_STEPS = 16  # The maximum of a batch.
_BATCH_OPERATIONS = 4e12  # Of a batch on a CPU: less than a minute on two cores.


def read(
    task: Task,
    path: str,
    kind: str = "",
    encoding: str = "utf-8",
    on_bad: str = sources.STOP,
    text_columns: Sequence[str] = (),
) -> Iterator[Row]:
    """Yield the rows, numbered from 0, and instead of a bad row its error.

    Args:
        task: gives the fields of the rows.
        path: a file, or - for standard input.
        kind: one of `INPUT_KINDS`; by default the ending of the file's name.
        encoding: the encoding of a text file.
        on_bad: "skip" logs bad rows and skips them.
        text_columns: the columns of the task's fields, in the order of the fields; by default named like them.

    Raises:
        UserError: the file cannot be read or decoded, or lacks a column; the message names the file and the line.
    """
    kind = kind_of(path, kind)
    columns = sources.columns_of(task, text_columns)
    for index, (place, cells) in enumerate(_parse(path, kind, encoding)):
        if isinstance(cells, dict) and kind == "txt" and len(task.fields) == 1:
            cells = {columns[task.fields[0]]: cells["text"]}
        if isinstance(cells, dict) and kind != "jsonl":
            _check_columns(path, columns.values(), cells)
        try:
            if isinstance(cells, errors.UserError):
                raise cells
            fields = task.fields_of(place, cells, columns, sources.NAME_COLUMNS)
            row = Example(fields, "", index, place, extra=cells)
        except errors.UserError as error:
            if sources.is_skipped(error, task, on_bad):
                logging.warning("left out: %s", error)
            else:
                yield sources.with_advice(error)
        else:
            yield row


def kind_of(path: str, kind: str = "") -> str:
    """Return the given format of an input, or else the ending of its name."""
    return kind or pathlib.PurePath(path).suffix[1:].lower()


def _check_columns(path: str, columns: Iterable[str], cells: dict[str, Any]) -> None:
    """Raise UserError if a table lacks a column."""
    if missing := [column for column in columns if column not in cells]:
        names = errors.alternatives(missing[0], cells)
        raise errors.UserError(f"{path}: has no column {missing[0]!r}; it has {names}{sources.NAME_COLUMNS}")


def parse_text(task: Task, text: str) -> dict[str, str]:
    """Parse a text into fields.

    A task with one field takes the whole text. Other tasks take a JSON object; anything else raises UserError.
    """
    if len(task.fields) == 1:
        return task.fields_of("--text", {task.fields[0]: text})
    try:
        given = {**json.loads(text)}
    except (ValueError, TypeError, RecursionError):
        example = json.dumps(dict.fromkeys(task.fields, "…"), ensure_ascii=False)
        raise errors.UserError(
            f"--text: give the fields {errors.join_names(task.fields)} as JSON: --text='{example}'"
        ) from None
    # A field may be missing, but not misspelt.
    if not given.keys() >= {*task.fields} and (unknown := [name for name in given if name not in task.fields]):
        names = errors.alternatives(unknown[0], task.fields)
        raise errors.UserError(f"--text: no field {unknown[0]!r}; choose from {names}")
    return task.fields_of("--text", {**dict.fromkeys(task.fields, ""), **given})


def _parse(path: str, kind: str, encoding: str) -> Iterator[formats.Parsed]:
    if path == STANDARD and kind not in INPUT_KINDS[:-1]:
        raise errors.UserError(f"--format={kind}: for standard input, choose from {', '.join(INPUT_KINDS[:-1])}")
    if not kind:
        with files.refusals(pathlib.Path(path)):
            pathlib.Path(path).open("rb").close()  # Report a missing file or a folder before its missing ending.
    if kind not in INPUT_KINDS:
        raise errors.UserError(f"{path}: set --format= to one of {', '.join(INPUT_KINDS)} (save spreadsheets as CSV)")
    if path != STANDARD:
        yield from formats.parse(pathlib.Path(path), encoding, f".{kind}")
        return
    name = "standard input"

    def message(error: UnicodeError) -> str:
        return f"{name}, after row {count}: not {encoding.upper()}: {error}"

    count = 0
    with formats.decoding(encoding, message):
        text = formats.as_text(sys.stdin.buffer, name, encoding, f".{kind}")
        for row in formats.TEXT_FORMATS[f".{kind}"](text, name):
            count += 1
            yield row


@dataclasses.dataclass(frozen=True)
class Batch:
    """Some rows and their prompts."""

    examples: Sequence[Example]
    queries: Queries


def batch_characters(model: lm.LanguageModel) -> int:
    """Return the characters of a batch, whose predictions are written together.

    They depend on the model and its devices, and never on the clock, so that equal runs write equal bytes.
    """
    tokens = _BATCH_STEPS * model.step_tokens * model.mesh.shape[parallel.DATA]
    if model.platform == "cpu":
        tokens = min(tokens, int(_BATCH_OPERATIONS / (2 * registry.num_parameters(model.config))))
    return _TOKEN_CHARACTERS * max(1, tokens)


def count(path: str, kind: str = "", encoding: str = "utf-8") -> int | None:
    """Return the number of rows of a file, bad rows included; None for standard input and pipes."""
    if path == STANDARD or not pathlib.Path(path).is_file():
        return None
    kind = kind_of(path, kind)
    return sum(1 for _ in _parse(path, kind, encoding))


def batches(rows: Iterable[Row], fitted: Fitted, characters: int | None = None) -> Iterator[Batch]:
    """Yield the rows in batches of about `characters` characters.

    Batches have few sizes, because programs are compiled for each size.

    Raises:
        UserError: on a bad row, after a batch of all rows before it.
    """

    def batch(examples: Sequence[Example]) -> Batch:
        return Batch(examples, fitted.build_prompts(examples))

    error = None
    enough = characters or batch_characters(fitted.model)
    waiting: list[Example] = []
    size = 0
    for row in rows:
        if isinstance(row, errors.UserError):
            error = row
            break
        waiting.append(row)
        size += len(fitted.task.render(row))
        while size >= enough:  # A long row may fill a batch alone.
            # Cut to the largest of 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, … rows.
            unit = 2 ** max(0, len(waiting).bit_length() - 3)
            count = len(waiting) // unit * unit
            yield batch(waiting[:count])
            waiting = waiting[count:]
            size = sum(len(fitted.task.render(example)) for example in waiting)
    if waiting:
        yield batch(waiting)
    if error:
        raise error


def prefetch(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield the batches; a thread builds each batch while the previous one is in use."""
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        following = thread.submit(next, batches, None)
        while batch := following.result():
            following = thread.submit(next, batches, None)
            yield batch
