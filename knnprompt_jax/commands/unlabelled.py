"""Rows without labels as examples, one at a time, and in batches with their prompts."""

import collections
import functools
import hashlib
import json
import pathlib
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from knnprompt_jax.classifier.experts.expert import Readings
from knnprompt_jax.classifier.fitted import Fitted, Queries
from knnprompt_jax.common import errors, files, parallel, progress
from knnprompt_jax.inference import lm, states
from knnprompt_jax.inference.prompts import layout
from knnprompt_jax.models import registry
from knnprompt_jax.tasks.table_file import SKIP, Table
from knnprompt_jax.tasks.task import Example, Task

_TOKEN_CHARACTERS = 4  # Characters of a token, about.
_BATCH_STEPS = 16  # The maximum of a batch.
_BATCH_OPERATIONS = 4e12  # Of a batch on a CPU: less than a minute on two cores.


def read_all(table: Table, task: Task) -> list[Example]:
    """Return the rows of a file; raise UserError if there are none."""
    rows = list(table.unlabelled(task))
    if not rows:
        raise errors.UserError(f"{table.path}: no rows")
    return rows


def count_rows(table: Table, task: Task) -> int | None:
    """Return the number of rows of a file, None of a pipe; raise UserError if a row is bad."""
    if not pathlib.Path(table.path).is_file():
        return None
    return sum(1 for _ in (table.rows() if table.on_bad == SKIP else table.unlabelled(task)))


def digest_input(path: str) -> str:
    """Return the SHA-256 of a file; for a pipe, return a random digest, so that no run resumes it."""
    if not pathlib.Path(path).is_file():
        return uuid.uuid4().hex
    with files.refusals(pathlib.Path(path)), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def parse_text(task: Task, text: str) -> Example:
    """Return a text as an example: the whole text, or a JSON object if the task has several fields.

    Raises:
        UserError: the text is empty, or is no JSON object of the fields.
    """
    row: Any = {task.fields[0]: text}
    if len(task.fields) > 1:
        try:
            row = {**json.loads(text)}
        except (ValueError, TypeError, RecursionError):
            fields = json.dumps(dict.fromkeys(task.fields, "…"), ensure_ascii=False)
            raise errors.UserError(f"--text: give the fields as JSON: --text='{fields}'") from None
    return Example(task.fields_of("--text", row), label="", row=0)


def batch_characters(model: lm.LanguageModel) -> int:
    """Return the characters of a batch, whose predictions are written together.

    They depend on the model and its devices, and never on the clock, so that equal runs write equal bytes.
    """
    tokens = _BATCH_STEPS * model.step_tokens * model.mesh.shape[parallel.DATA]
    if model.platform == "cpu":
        tokens = min(tokens, int(_BATCH_OPERATIONS / (2 * registry.num_parameters(model.config))))
    return _TOKEN_CHARACTERS * max(1, tokens)


def read_batches(
    fitted: Fitted, rows: Iterable[Example], cache: states.Cache | None, total: int | None = None, finished: int = 0
) -> Iterator[tuple[list[Example], Readings]]:
    """Yield the rows and readings of each batch; report progress, and warn of prompts that were cut.

    Args:
        rows: the rows, which only process 0 needs.
        total: the number of rows of the input, if it is known.
        finished: the number of rows of the input that precede these rows.
    """
    batches = split_into_batches(rows, fitted)
    waiting: collections.deque[tuple[list[Example], Queries]] = collections.deque()

    def build() -> Iterator[Queries]:
        while examples := parallel.call_in_main(functools.partial(next, batches, None)):
            waiting.append((examples, fitted.build_prompts(examples)))
            yield waiting[-1][1]

    num_rows = 0
    num_truncated = 0
    with progress.whole(total, "row", len(fitted.content.views)) as settle:
        settle(finished)
        for readings in fitted.read_prompts(build(), cache, title=""):
            examples, queries = waiting.popleft()
            yield examples, readings
            num_rows += len(examples)
            num_truncated += queries.num_truncated
            settle(examples[-1].row + 1)
    if parallel.is_main():
        layout.warn_truncated(num_truncated, num_rows, fitted.model.context)


def split_into_batches(rows: Iterable[Example], fitted: Fitted) -> Iterator[list[Example]]:
    """Yield the rows in batches of about `batch_characters`.

    Their sizes are 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, …, because programs are compiled for each size.
    """
    max_characters = batch_characters(fitted.model)
    waiting: list[Example] = []
    size = 0
    for row in rows:
        waiting.append(row)
        size += len(fitted.task.render(row))
        while size >= max_characters:  # A long row may fill a batch alone.
            unit = 2 ** max(0, len(waiting).bit_length() - 3)
            count = len(waiting) // unit * unit
            yield waiting[:count]
            waiting = waiting[count:]
            size = sum(len(fitted.task.render(example)) for example in waiting)
    if waiting:
        yield waiting
