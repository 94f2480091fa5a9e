"""Rows → prompts of many steps of the model, in the same few packings from the first batch to the last."""

import concurrent.futures
import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from absl import logging

from knnprompt_jax import errors, lm, parallel
from knnprompt_jax import progress as progress_lib
from knnprompt_jax.classifier.core import Classifier
from knnprompt_jax.prediction import rows as rows_lib
from knnprompt_jax.prompts import layout, packing
from knnprompt_jax.tasks.task import Example

CHARACTERS = 64  # Of text in a batch, for each token of a step: about 16 steps.
_Good = tuple[Example, rows_lib.Mark]  # The mark after the example and the bad rows that follow it.
_SLACK = 1.125  # Texts of later batches may be shorter, so that more of them end in a step.


@dataclasses.dataclass(frozen=True)
class Batch:
    """Some rows and their prompts; `mark` and `reads` are what the next batch goes on from."""

    examples: Sequence[Example]
    prompts: layout.Prompts
    mark: rows_lib.Mark
    reads: tuple[int, ...]


class BatchLayout:
    """Prompts with one prefix, in two row widths: one for short texts and one for all others.

    `reads` has J, the prompts that a step has room for: of short texts without and with the prefix, of long ones without and with
    it. It grows where a batch needs more, which costs a compilation.
    """

    def __init__(self, classifier: Classifier, reads: Sequence[int] = ()):
        self.classifier, self.model, self.reads = classifier, classifier.lm, list(reads) or [0] * 4
        probes = [Example(dict.fromkeys(classifier.task.fields, text), "") for text in "ab"]
        self.prefix_P = classifier.lay_out(probes).groups[0].prefix_P

    def batch(self, examples: Sequence[Example], mark: rows_lib.Mark) -> Batch:
        """These rows with their prompts."""
        prompts = self.classifier.lay_out(examples)
        groups = [part for group in prompts.groups for part in _by_width(_cut(group, self.prefix_P))]
        for group in groups:
            self._make_room(group)
        return Batch(examples, dataclasses.replace(prompts, groups=tuple(groups)), mark, tuple(self.reads))

    def shape(self, group: layout.PromptGroup) -> packing.PackShape:
        """The packing of a group of a batch."""
        shared, longest = bool(len(group.prefix_P)), _longest(group)
        width = packing.ROW_WIDTH
        if longest > width:
            room = self.model.context - (len(self.prefix_P) if shared else 0)
            width = packing.round_up(max(longest, room), 64)
        rows = max(1, self.model.step_tokens // width)
        prefix = packing.round_up(len(self.prefix_P) if shared else 0, 64)
        return packing.PackShape(prefix, width, rows, self.reads[_kind(group)])

    def _make_room(self, group: layout.PromptGroup) -> None:
        shape = self.shape(group)
        needed = packing.most_reads(group, shape.width, shape.rows)
        if needed > shape.reads:
            self.reads[_kind(group)] = packing.round_up(int(_SLACK * needed), 8)


def read(
    rows: Iterable[rows_lib.MarkedRow], laid: BatchLayout, characters: int | None = None, skip_bad: bool = False
) -> Iterator[Batch]:
    """The rows in batches of about as many characters; bad rows are told and left out, or end the batches.

    Batches have few sizes, since programs are compiled for each of them, which takes time and memory.

    Raises:
      UserError: on a bad row, after a batch of all rows before it.
    """
    model = laid.model
    most = characters or CHARACTERS * model.step_tokens * model.mesh.shape[parallel.DATA]
    good: list[_Good] = []
    size = 0
    for row in rows:
        if isinstance(row.example, errors.UserError):
            if not skip_bad:
                if good:
                    yield _batch(good, laid)
                raise row.example
            logging.warning("left out: %s", row.example)
            if good:
                good[-1] = (good[-1][0], row.mark)
            continue
        good.append((row.example, row.mark))
        size += _characters(row.example, laid)
        if size >= most:
            count = _fewer(len(good))
            yield _batch(good[:count], laid)
            good = good[count:]
            size = sum(_characters(example, laid) for example, _ in good)
    if good:
        yield _batch(good, laid)


def ahead(batches: Iterator[Batch]) -> Iterator[Batch]:
    """The batches, each made while the one before it is in use."""
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, batches, None)
        while batch := coming.result():
            coming = thread.submit(next, batches, None)
            yield batch


def states(batch: Batch, laid: BatchLayout, progress: progress_lib.Progress | None = None) -> lm.States:
    """What the model says of the batch; the prefix is read for the first one only."""
    return laid.model.states(batch.prompts, laid.shape, progress, keep_prefix=True)


def _batch(good: Sequence[_Good], laid: BatchLayout) -> Batch:
    return laid.batch([example for example, _ in good], good[-1][1])


def _characters(example: Example, laid: BatchLayout) -> int:
    return len(laid.classifier.task.render(example))


def _fewer(count: int) -> int:
    """The largest of 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, … that is not above `count`."""
    unit = 2 ** max(0, count.bit_length() - 3)
    return count // unit * unit


def _kind(group: layout.PromptGroup) -> int:
    """Which of `BatchLayout.reads` is the group's."""
    return 2 * (_longest(group) > packing.ROW_WIDTH) + bool(len(group.prefix_P))


def _longest(group: layout.PromptGroup) -> int:
    return max(len(suffix) for suffix in group.suffixes)


def _cut(group: layout.PromptGroup, prefix_P: np.ndarray) -> layout.PromptGroup:
    """The same prompts after no more than this prefix, whatever more the texts of one batch share."""
    shared = packing.num_shared(group.prefix_P, prefix_P)
    suffixes = tuple(np.concatenate([group.prefix_P[shared:], suffix]) for suffix in group.suffixes)
    return dataclasses.replace(group, prefix_P=group.prefix_P[:shared], suffixes=suffixes)


def _by_width(group: layout.PromptGroup) -> Iterator[layout.PromptGroup]:
    lengths_N = np.array([len(suffix) for suffix in group.suffixes])
    for members in (np.flatnonzero(lengths_N <= packing.ROW_WIDTH), np.flatnonzero(lengths_N > packing.ROW_WIDTH)):
        if members.size:
            yield group.take(members)
