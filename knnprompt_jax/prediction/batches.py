"""Rows in batches of a few sizes, laid out as prompts while the batch before is read."""

import concurrent.futures
import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from knnprompt_jax import errors, parallel
from knnprompt_jax.classifier.base import Classifier
from knnprompt_jax.prediction import rows as rows_lib
from knnprompt_jax.prompts import layout
from knnprompt_jax.tasks.task import Example

CHARACTERS = 64  # Characters of text in a batch, per token of a step: about 16 steps.


@dataclasses.dataclass(frozen=True)
class Batch:
    """Some rows and their prompts."""

    examples: Sequence[Example]
    prompts: layout.Prompts


def read(rows: Iterable[rows_lib.Row], classifier: Classifier, characters: int | None = None) -> Iterator[Batch]:
    """Yield the rows in batches of about as many characters. Batches have few sizes, because programs are compiled for each.

    Raises:
      UserError: on a bad row, after a batch of all rows before it.
    """

    def batch(examples: Sequence[Example]) -> Batch:
        return Batch(examples, classifier.lay_out(examples))

    model, error = classifier.model, None
    most = characters or CHARACTERS * model.step_tokens * model.mesh.shape[parallel.DATA]
    waiting: list[Example] = []
    size = 0
    for row in rows:
        if isinstance(row, errors.UserError):
            error = row
            break
        waiting.append(row)
        size += len(classifier.task.render(row))
        if size >= most:
            # Cut to the largest of 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, … rows.
            unit = 2 ** max(0, len(waiting).bit_length() - 3)
            count = len(waiting) // unit * unit
            yield batch(waiting[:count])
            waiting = waiting[count:]
            size = sum(len(classifier.task.render(example)) for example in waiting)
    if waiting:
        yield batch(waiting)
    if error:
        raise error


def ahead(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield the batches, each made while the one before it is in use."""
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, batches, None)
        while batch := coming.result():
            coming = thread.submit(next, batches, None)
            yield batch
