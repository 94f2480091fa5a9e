"""Defects of the published data: test texts in train, repeated texts, repeated texts with conflicting labels."""

import collections
import dataclasses
from collections.abc import Iterable, Sequence

from knnprompt_jax.tasks.task import Example


@dataclasses.dataclass(frozen=True)
class Defects:
    """Counts over exact texts (all fields of a row, without the label).

    Attributes:
      num_eval: rows of the evaluation split.
      eval_in_train: rows of the evaluation split whose text is also in train.
      repeated: train rows that repeat the text of an earlier one.
      conflicting: train texts with more than one label.
    """

    num_eval: int
    eval_in_train: int
    repeated: int
    conflicting: int

    def __bool__(self) -> bool:
        return bool(self.eval_in_train or self.repeated or self.conflicting)

    def __str__(self) -> str:
        counted = (
            (self.eval_in_train, f"of {self.num_eval} evaluation texts also occur in train"),
            (self.repeated, "train row repeats a text" if self.repeated == 1 else "train rows repeat a text"),
            (self.conflicting, f"text{' has' if self.conflicting == 1 else 's have'} conflicting labels"),
        )
        return "; ".join(f"{count} {what}" for count, what in counted if count)


def find(train: Sequence[Example], evaluation: Sequence[Example]) -> Defects:
    """Count the defects of a train split and an evaluation split.

    In the published files of MPQA 56 of 256 dev_subsample texts occur in train, 1,871 train rows repeat a text, and 73 texts have
    conflicting labels.
    """
    labels = _labels_by_text(train)
    return Defects(
        num_eval=len(evaluation),
        eval_in_train=sum(_text(example) in labels for example in evaluation),
        repeated=len(train) - len(labels),
        conflicting=sum(len(names) > 1 for names in labels.values()),
    )


def remove(train: Sequence[Example], evaluation: Iterable[Example]) -> list[Example]:
    """Return the train rows whose text is not in `evaluation`, has a single label, and occurs for the first time."""
    labels = _labels_by_text(train)
    seen = {_text(example) for example in evaluation}
    kept = []
    for example in train:
        text = _text(example)
        if text not in seen and len(labels[text]) == 1:
            kept.append(example)
        seen.add(text)
    return kept


def _labels_by_text(rows: Iterable[Example]) -> dict[tuple[str, ...], set[str]]:
    labels = collections.defaultdict(set)
    for example in rows:
        labels[_text(example)].add(example.label)
    return labels


def _text(example: Example) -> tuple[str, ...]:
    return tuple(example.fields.values())
