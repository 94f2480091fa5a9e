"""Rows in batches of a few sizes, laid out as prompts while the batch before is read."""

import concurrent.futures
import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from absl import logging

from knnprompt_jax import errors, parallel
from knnprompt_jax.classifier.base import Classifier
from knnprompt_jax.prediction import rows as rows_lib
from knnprompt_jax.prompts import layout
from knnprompt_jax.tasks.task import Example

CHARACTERS = 64  # Characters of text in a batch, per token of a step: about 16 steps.
_Good = tuple[Example, rows_lib.Mark]  # The mark follows the example and the bad rows after it.


@dataclasses.dataclass(frozen=True)
class Batch:
    """Some rows and their prompts; the next batch begins at `mark`."""

    examples: Sequence[Example]
    prompts: layout.Prompts
    mark: rows_lib.Mark


def read(
    rows: Iterable[rows_lib.MarkedRow], classifier: Classifier, characters: int | None = None, skip_bad: bool = False
) -> Iterator[Batch]:
    """Yield the rows in batches of about as many characters. Batches have few sizes, because programs are compiled for each.

    Bad rows are logged and left out with `skip_bad`.

    Raises:
      UserError: on a bad row, after a batch of all rows before it.
    """
    model = classifier.model
    most = characters or CHARACTERS * model.step_tokens * model.mesh.shape[parallel.DATA]
    good: list[_Good] = []
    size = 0
    for row in rows:
        if isinstance(row.example, errors.UserError):
            if not skip_bad:
                if good:
                    yield _batch(good, classifier)
                raise row.example
            logging.warning("left out: %s", row.example)
            if good:
                good[-1] = (good[-1][0], row.mark)
            continue
        good.append((row.example, row.mark))
        size += len(classifier.task.render(row.example))
        if size >= most:
            # Cut to the largest of 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, … rows.
            unit = 2 ** max(0, len(good).bit_length() - 3)
            count = len(good) // unit * unit
            yield _batch(good[:count], classifier)
            good = good[count:]
            size = sum(len(classifier.task.render(example)) for example, _ in good)
    if good:
        yield _batch(good, classifier)


def ahead(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield the batches, each made while the one before it is in use."""
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, batches, None)
        while batch := coming.result():
            coming = thread.submit(next, batches, None)
            yield batch


def _batch(good: Sequence[_Good], classifier: Classifier) -> Batch:
    examples = [example for example, _ in good]
    return Batch(examples, classifier.lay_out(examples), good[-1][1])
