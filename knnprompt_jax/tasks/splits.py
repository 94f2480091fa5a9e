"""Seeded few-shot splits: the same seed gives the published demonstrations and anchors, in the published order."""

import collections
import dataclasses
import hashlib
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from knnprompt_jax.common import errors
from knnprompt_jax.tasks.task import Example, Task

T = TypeVar("T")
ALL_ROWS = -1  # In the place of a number of rows per class.


class ClassCounts(NamedTuple):
    """Numbers of rows of one class in train, among the demonstrations and among the anchors."""

    train: int
    demonstrations: int
    anchors: int


@dataclasses.dataclass(frozen=True)
class FewShotSplit:
    """A draw of `shots` rows per class: `demo_shots` of them demonstrations, the rest anchors.

    `shots` is the number of rows of the largest class if all rows are used.
    `class_counts` maps each label, in class order, to the numbers of its train rows, demonstrations and anchors.
    `warnings` names each class that has fewer rows than requested; the published rule uses the rows that exist.
    """

    demonstrations: tuple[Example, ...]
    anchors: tuple[Example, ...]
    seed: int
    shots: int
    demo_shots: int
    class_counts: Mapping[str, ClassCounts]
    warnings: tuple[str, ...]


def draw(train: Sequence[Example], task: Task, *, shots: int, demo_shots: int, seed: int) -> FewShotSplit:
    """Draw a few-shot split like the paper's released code.

    If `shots` is `ALL_ROWS`, all rows are used, and at most half of a class become demonstrations.

    The generator is seeded once for the demonstrations and again for the anchors. Anchors are drawn from the train rows
    without the first equal copy of each demonstration. With `demo_shots=0` there are no demonstrations (zero-shot
    prompts).

    Raises:
        UserError: the numbers of shots are impossible, or a class of the task has no row.
    """
    if demo_shots < 0 or (shots != ALL_ROWS and demo_shots >= shots):
        raise errors.UserError(
            f"shots={shots}, demo_shots={demo_shots}: choose 1 or more rows per class, and fewer demonstrations than rows, "
            "because no anchors would be left (the paper reports in-context learning alone where the two are equal)"
        )
    rows = collections.Counter(example.label for example in train)
    for label, word in zip(task.labels, task.label_words, strict=True):
        if not rows[label]:
            raise errors.UserError(f"task {task.name!r}: no train row has the label {label!r} ({word})")
    largest = max(rows.values())
    max_anchors = largest if shots == ALL_ROWS else shots - demo_shots  # Per class.
    max_share = 0.5 if shots == ALL_ROWS else 1.0
    demonstrations, rest = _separate(train, sample(train, demo_shots, seed, max_share))
    anchors = sample(rest, max_anchors, seed)
    demo_counts = collections.Counter(example.label for example in demonstrations)
    anchor_counts = collections.Counter(example.label for example in anchors)
    counts = {label: ClassCounts(rows[label], demo_counts[label], anchor_counts[label]) for label in task.labels}
    return FewShotSplit(
        demonstrations=tuple(demonstrations),
        anchors=tuple(anchors),
        seed=seed,
        shots=largest if shots == ALL_ROWS else shots,
        demo_shots=demo_shots,
        class_counts=counts,
        warnings=_warnings(task, counts, shots),
    )


def _warnings(task: Task, counts: Mapping[str, ClassCounts], shots: int) -> tuple[str, ...]:
    """Return a warning for each class with fewer rows than requested."""
    return tuple(
        f"task {task.name!r}: class {label!r} ({word}) has {count.train} train rows of the {shots} "
        f"asked for: {count.demonstrations} are demonstrations, {count.anchors} anchors"
        for (label, count), word in zip(counts.items(), task.label_words, strict=True)
        if count.demonstrations + count.anchors < shots
    )


def rows_digest(rows: Iterable[Example]) -> str:
    """Return the SHA-256 of rows in their order: the texts, the label and all other columns, but not the place."""
    contents = (
        json.dumps([each.fields, each.label, each.extra], sort_keys=True, default=str).encode() + b"\n" for each in rows
    )
    return hashlib.sha256(b"".join(contents)).hexdigest()


def sample_by_class(
    classes: Iterable[Sequence[T]], per_class: int, generator: random.Random, share: float = 1.0
) -> list[T]:
    """Draw up to `per_class` members of each class, at most this share of it, in the order of the classes."""
    drawn: list[T] = []
    for members in classes:
        drawn += generator.sample(members, min(per_class, int(share * len(members))))
    return drawn


def group_by_class(rows: Iterable[Example]) -> dict[str, list[Example]]:
    """Return the rows of each label, labels in the order of their first row."""
    by_class: dict[str, list[Example]] = {}
    for example in rows:
        by_class.setdefault(example.label, []).append(example)
    return by_class


def sample(rows: Iterable[Example], per_class: int, seed: int, share: float = 1.0) -> list[Example]:
    """Draw up to `per_class` rows of each class, at most this share of it, in random order."""
    generator = random.Random(seed)
    drawn = sample_by_class(group_by_class(rows).values(), per_class, generator, share)
    generator.shuffle(drawn)
    return drawn


def _separate(rows: Iterable[Example], drawn: Iterable[Example]) -> tuple[list[Example], list[Example]]:
    """Return the drawn rows, and the rows without them.

    Where rows are equal, the first copy counts as the drawn one, as in the published code, which calls `list.remove`.
    """
    drawn = list(drawn)
    remaining = collections.Counter(drawn)
    copies = collections.defaultdict(list)
    rest = []
    for example in rows:
        if remaining.get(example):
            remaining[example] -= 1
            copies[example].append(example)
        else:
            rest.append(example)
    return [copies[example].pop(0) for example in drawn], rest
