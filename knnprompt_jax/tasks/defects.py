"""Defects of rows: repeated texts, conflicting labels, test texts in train, and labels that are probably mistakes."""

import collections
import re
from collections.abc import Iterable, Iterator, Sequence

from knnprompt_jax.common import errors
from knnprompt_jax.tasks import task
from knnprompt_jax.tasks.task import Example

_MAX_NAMED = 5  # Rows that a message names.
_SEPARATOR = re.compile(r"[,;|/+&]")  # Between several labels in one cell.


def describe(train: Sequence[Example], evaluation: Sequence[Example]) -> str:
    """Describe how many rows of a train and an evaluation split are defective; "" if none is.

    Texts are compared by `Example.text_key`, without labels.
    """
    labels = _labels_by_text(train)
    parts = []
    if known := sum(row.text_key in labels for row in evaluation):
        parts.append(f"{known} of {len(evaluation)} evaluation texts also occur in train")
    if repeated := len(train) - len(labels):
        parts.append(f"{repeated} train row{' repeats' if repeated == 1 else 's repeat'} a text")
    if conflicting := sum(len(names) > 1 for names in labels.values()):
        parts.append(f"{conflicting} text{' has' if conflicting == 1 else 's have'} conflicting labels")
    return "; ".join(parts)


def places(train: Sequence[Example]) -> str:
    """Return the places of the first rows that repeat or contradict an earlier row, for a message; "" without any."""
    first: dict[tuple[str, ...], Example] = {}
    repeats = []
    conflicts = []
    for row in train:
        known = first.setdefault(row.text_key, row)
        if known.label != row.label:
            conflicts.append(f"{_place(row)} ({row.label!r}) contradicts {_place(known)} ({known.label!r})")
        elif known is not row:
            repeats.append(f"{_place(row)} repeats {_place(known)}")
    return "; ".join([*conflicts[:_MAX_NAMED], *repeats[:_MAX_NAMED]])


def _place(row: Example) -> str:
    """Return the line of a row in its file, or its place elsewhere."""
    name, _, number = row.place.rpartition(":")
    return f"line {number}" if name else row.place or f"row {row.row}"


def drop(train: Sequence[Example], evaluation: Iterable[Example]) -> list[Example]:
    """Drop defective train rows.

    Returns:
        The train rows whose text is not in `evaluation`, has a single label, and occurs for the first time.
    """
    labels = _labels_by_text(train)
    seen = {row.text_key for row in evaluation}
    kept = []
    for row in train:
        if row.text_key not in seen and len(labels[row.text_key]) == 1:
            kept.append(row)
        seen.add(row.text_key)
    return kept


def label_warnings(rows: Iterable[Example]) -> Iterator[str]:
    """Yield warnings about labels of train rows that differ only in case and blanks, or that join other labels."""
    counts = collections.Counter(row.label for row in rows)
    same = collections.defaultdict(list)
    for label in counts:
        same[task.fold(label)].append(label)
    for labels in same.values():
        if len(labels) > 1:
            counted = ", ".join(f"{label!r} ({counts[label]})" for label in labels)
            yield f"labels that differ only in case and blanks are different classes (rows): {counted}"
    if joined := [label for label in counts if _SEPARATOR.search(label) and _parts(label) <= same.keys()]:
        yield (
            f"labels that join other labels are classes of their own: {errors.join_names(map(repr, joined))}; give each "
            "row one label"
        )


def _parts(label: str) -> set[str]:
    """Return the labels that a label joins, folded."""
    return {task.fold(part) for part in _SEPARATOR.split(label)}


def _labels_by_text(rows: Iterable[Example]) -> dict[tuple[str, ...], set[str]]:
    labels = collections.defaultdict(set)
    for row in rows:
        labels[row.text_key].add(row.label)
    return labels
