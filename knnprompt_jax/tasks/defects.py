"""Defects of rows: test texts in train, repeated texts, texts with conflicting labels, and near-identical labels."""

import collections
import contextlib
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

from knnprompt_jax import errors
from knnprompt_jax.tasks.task import Example


def describe(train: Sequence[Example], evaluation: Sequence[Example]) -> str:
    """Describe how many rows of a train and an evaluation split are defective; "" if none is.

    Texts are compared exactly, without labels. In the published files of MPQA 56 of 256 dev_subsample texts occur in
    train, 1,871 train rows repeat a text, and 73 texts have conflicting labels.
    """
    labels = _labels_by_text(train)
    parts = []
    if known := sum(_text(row) in labels for row in evaluation):
        parts.append(f"{known} of {len(evaluation)} evaluation texts also occur in train")
    if repeated := len(train) - len(labels):
        parts.append(f"{repeated} train row{' repeats' if repeated == 1 else 's repeat'} a text")
    if conflicting := sum(len(names) > 1 for names in labels.values()):
        parts.append(f"{conflicting} text{' has' if conflicting == 1 else 's have'} conflicting labels")
    return "; ".join(parts)


def drop(train: Sequence[Example], evaluation: Iterable[Example]) -> list[Example]:
    """Drop defective train rows.

    Returns:
        The train rows whose text is not in `evaluation`, has a single label, and occurs for the first time.
    """
    labels = _labels_by_text(train)
    seen = {_text(example) for example in evaluation}
    kept = []
    for example in train:
        text = _text(example)
        if text not in seen and len(labels[text]) == 1:
            kept.append(example)
        seen.add(text)
    return kept


def label_warnings(rows: Sequence[Example]) -> Iterator[str]:
    """Yield warnings about the labels of train rows: a single class, classes with one row, near-identical labels."""
    counts = collections.Counter(row.label for row in rows)
    if len(counts) == 1:
        yield f"all train rows have the label {rows[0].label!r}, so every prediction will be {rows[0].label!r}"
    elif len(counts) == len(rows):
        yield (
            f"each of {len(rows)} train rows has a label of its own, such as {rows[0].label!r}: is it the right label "
            "column?"
        )
    elif single := [repr(label) for label, count in counts.items() if count == 1]:
        yield f"labels with a single train row: {errors.join_names(single)}"
    yield from alike(row.label for row in rows)


def alike(labels: Iterable[str]) -> Iterator[str]:
    """Yield a warning for each group of labels that are probably the same."""
    counts = collections.Counter(labels)
    same = collections.defaultdict(list)
    for label in counts:
        key = plain(label)
        with contextlib.suppress(ValueError):
            key = str(float(key))
        same[key].append(label)
    for names in same.values():
        if len(names) > 1:
            counted = ", ".join(f"{name!r} ({counts[name]})" for name in names)
            yield (
                "labels that differ only in case, spaces, number format or Unicode form are different classes (rows): "
                f"{counted}; write them alike in the file to make them one class"
            )


def matches(rows: Iterable[Example], known: Iterable[Example]) -> list[tuple[Example, Example]]:
    """Return the pairs of a row and a known example with the same text."""
    by_text = {_text(example): example for example in known}
    return [(row, by_text[_text(row)]) for row in rows if _text(row) in by_text]


def plain(text: str) -> str:
    """Return the text without differences of case, white space and Unicode forms."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _labels_by_text(rows: Iterable[Example]) -> dict[tuple[str, ...], set[str]]:
    labels = collections.defaultdict(set)
    for example in rows:
        labels[_text(example)].add(example.label)
    return labels


def _text(example: Example) -> tuple[str, ...]:
    return tuple(example.fields.values())
