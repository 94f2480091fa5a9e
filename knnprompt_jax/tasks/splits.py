"""Train rows: seeded few-shot splits, and defects.

The same seed gives the published demonstrations and anchors, in the published order. Defects are repeated texts,
conflicting labels, evaluation texts in train, and labels that are probably mistakes.
"""

import collections
import dataclasses
import hashlib
import json
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from knnprompt_jax.common import errors
from knnprompt_jax.tasks import columns
from knnprompt_jax.tasks.task import Example, Task

T = TypeVar("T")
ALL_ROWS = -1  # Instead of a number of rows per class.
_MAX_NAMED = 5  # Rows that a message names.
_SEPARATORS = re.compile(r"[,;|/+&]|\s(?:and|or)\s"), re.compile(r"[^\w.]+|_")  # Between several labels in one cell.
# Cyrillic letters, and the Latin ones that look like them in lower or upper case.
_LOOK_ALIKE = str.maketrans(
    "\u0430\u0432\u0435\u0456\u043a\u043c\u043d\u043e\u0440\u0441\u0442\u0443\u0445", "abeikmhopctyx"
)
_WHOLE_NUMBER = re.compile(r"^(-?)0*(\d+)(\.0*)?$")


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
        advice = "choose 1 or more rows per class, and fewer demonstrations, so that anchors are left"
        raise errors.UserError(f"shots={shots}, demo_shots={demo_shots}: {advice}")
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
        warnings=tuple(
            f"task {task.name!r}: class {label!r} ({word}) has {count.train} train rows of the {shots} "
            f"asked for: {count.demonstrations} are demonstrations, {count.anchors} anchors"
            for (label, count), word in zip(counts.items(), task.label_words, strict=True)
            if count.demonstrations + count.anchors < shots
        ),
    )


def rows_digest(rows: Iterable[Example]) -> str:
    """Return the SHA-256 of rows in their order: the texts, the label and all other columns, but not the place."""
    contents = (json.dumps([row.fields, row.label, row.extra], sort_keys=True, default=str) + "\n" for row in rows)
    return hashlib.sha256("".join(contents).encode()).hexdigest()


def sample_by_class(
    classes: Iterable[Sequence[T]], per_class: int, generator: random.Random, share: float = 1.0
) -> list[T]:
    """Draw up to `per_class` members of each class, at most this share of it, in the order of the classes."""
    drawn: list[T] = []
    for members in classes:
        drawn += generator.sample(members, min(per_class, int(share * len(members))))
    return drawn


def group_by(attribute: str, rows: Iterable[Example]) -> dict[Any, list[Example]]:
    """Return the rows of each value of an attribute, values in the order of their first row."""
    groups = collections.defaultdict(list)
    for example in rows:
        groups[getattr(example, attribute)].append(example)
    return groups


def sample(rows: Iterable[Example], per_class: int, seed: int, share: float = 1.0) -> list[Example]:
    """Draw up to `per_class` rows of each class, at most this share of it, in random order."""
    generator = random.Random(seed)
    drawn = sample_by_class(group_by("label", rows).values(), per_class, generator, share)
    generator.shuffle(drawn)
    return drawn


def _separate(rows: Iterable[Example], drawn: Sequence[Example]) -> tuple[list[Example], list[Example]]:
    """Return the drawn rows, and the rows without them.

    Where rows are equal, the first copy counts as the drawn one, as in the published code, which calls `list.remove`.
    """
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


def describe_defects(train: Sequence[Example], evaluation: Sequence[Example] = (), with_places: bool = True) -> str:
    """Describe how many rows of a train and an evaluation split are defective, and the first of them; "" if none is.

    Texts are compared by `Example.text_key`, without labels.
    """
    by_text = group_by("text_key", train)
    pairs = [(rows[0], row) for rows in by_text.values() for row in rows[1:]]
    parts = []
    if known := sum(row.text_key in by_text for row in evaluation):
        parts.append(f"{known} of {len(evaluation)} evaluation texts also occur in train")
    if pairs:
        parts.append(f"{len(pairs)} train row{' repeats' if len(pairs) == 1 else 's repeat'} a text")
    if conflicting := len({row.text_key for first, row in pairs if row.label != first.label}):
        parts.append(f"{conflicting} text{' has' if conflicting == 1 else 's have'} conflicting labels")
    pairs.sort(key=lambda pair: pair[0].label == pair[1].label)  # Contradictions come first.
    places = "; ".join(f"{_place(row)} repeats {_place(first)}" for first, row in pairs[:_MAX_NAMED])
    return "; ".join(parts) + (f": {places}" if places and with_places else "")


def _place(row: Example) -> str:
    """Return the line of a row in its file, or its place elsewhere, with its label."""
    name, _, number = row.place.rpartition(":")
    place = f"line {number}" if name else row.place or f"row {row.row}"
    return f"{place} ({row.label!r})"


def drop_defects(train: Sequence[Example], evaluation: Iterable[Example]) -> list[Example]:
    """Drop defective train rows.

    Returns:
        The train rows whose text is not in `evaluation`, has a single label, and occurs for the first time.
    """
    by_text = group_by("text_key", train)
    known = {row.text_key for row in evaluation}
    return [rows[0] for text, rows in by_text.items() if text not in known and len(group_by("label", rows)) == 1]


def label_warnings(rows: Iterable[Example]) -> Iterator[str]:
    """Yield warnings about labels of train rows that differ only in spelling, join others, or occur once.

    A part of a joined label may be no label of its own if another label has the part, too.
    """
    counts = collections.Counter(row.label for row in rows)
    same = collections.defaultdict(list)
    for label in counts:
        same[_fold_label(label)].append(label)
    for labels in same.values():
        if len(labels) > 1:
            counted = ", ".join(f"{label!r} ({counts[label]})" for label in labels)
            yield f"labels that differ only in spelling are different classes (rows): {counted}"
    single = [label for label in counts if counts[label] == 1]
    if single and 2 * len(single) < len(counts):
        yield f"labels of a single row, which may be mistakes: {errors.join_names(map(repr, single))}"
    parts = [(label, [*map(_fold_label, separator.split(label))]) for separator in _SEPARATORS for label in counts]
    known = {*same, *errors.repeated(part for _, found in parts[: len(counts)] for part in {*found} if part)}
    if joined := [label for label, own in parts if len(own) > 1 and known.issuperset(own) and {*own} & same.keys()]:
        names = errors.join_names(map(repr, dict.fromkeys(joined)))
        yield f"labels that join other labels are classes of their own: {names}; give each row one label"


def _fold_label(label: str) -> str:
    """Return a label without differences of spelling, quotes and a final mark; numbers lose leading zeros and `.0`."""
    folded = columns.fold_name(label).translate(_LOOK_ALIKE)
    return _WHOLE_NUMBER.sub(r"\1\2", folded.strip("\"'").rstrip(".,:;!?") or folded)
