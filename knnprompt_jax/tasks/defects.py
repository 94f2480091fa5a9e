"""Defects of rows: test texts in train, repeated texts, texts with conflicting labels, and near-identical labels."""

import collections
import dataclasses
import difflib
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from knnprompt_jax import characters, errors
from knnprompt_jax.tasks.task import Example

WRITE_ALIKE = "write them alike in the file to make them one class"
_MAX_NAMED = 5  # Rows that a message names.
_MAX_GROUPS = 20  # Groups of merged labels that a message names.
_FEW = 2  # Rows of a label that may be a misspelt one,
_MANY = 8  # and of the label that was meant.
_MAX_RARE = 50  # Labels of few rows that are compared with others.
_CLOSE = 0.85  # The ratio of `difflib` from which on labels are close.


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


def places(train: Sequence[Example]) -> str:
    """Return the places of the first rows that repeat or contradict an earlier row, for a message; "" without any."""
    names = {_file_and_line(row)[0] for row in train}
    place_of = _line if len(names) == 1 else operator.attrgetter("place")
    first: dict[tuple[str, ...], Example] = {}
    repeats = []
    conflicts = []
    for row in train:
        known = first.setdefault(_text(row), row)
        if known.label != row.label:
            conflicts.append(f"{place_of(row)} ({row.label!r}) contradicts {place_of(known)} ({known.label!r})")
        elif known is not row:
            repeats.append(f"{place_of(row)} repeats {place_of(known)}")
    found = [*conflicts[:_MAX_NAMED], *repeats[:_MAX_NAMED]]
    more = ["…"] if len(found) < len(conflicts) + len(repeats) else []
    return "; ".join([*found, *more])


def _line(row: Example) -> str:
    """Return the line of a row in its file, or its place elsewhere."""
    name, number = _file_and_line(row)
    return f"line {number}" if name else row.place or f"row {row.row}"


def _file_and_line(row: Example) -> tuple[str, str]:
    """Return the file of a row and its line; two empty texts if it has none."""
    name, _, number = row.place.rpartition(":")
    return (name, number) if number.isdecimal() else ("", "")


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


def label_warnings(rows: Sequence[Example], advice: str = WRITE_ALIKE) -> Iterator[str]:
    """Yield warnings about labels of train rows: one class, classes with one row, similar or misspelt labels, blanks.

    `advice` says how to make one class of labels of one `characters.identity`.
    """
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
    yield from alike(counts.elements(), advice)
    if close := list(_misspelt(counts)):
        yield f"labels of few rows that may be misspelt (rows): {errors.join_names(close)}; correct them in the file"
    alone = (names[0] for names in _groups(counts, characters.likeness) if len(names) == 1)
    if padded := [repr(label) for label in alone if label != label.strip()]:
        yield f"labels keep the blanks at their ends: {errors.join_names(padded)}; remove them in the file"


def _misspelt(counts: Mapping[str, int]) -> Iterator[str]:
    """Yield each label of few rows beside the closest label of many rows, from which it differs not only in digits.

    `alike` names labels that differ only in form.
    """
    rare = [label for label, count in counts.items() if count <= _FEW]
    common = [label for label, count in counts.items() if count >= _MANY]
    for label in rare[:_MAX_RARE]:
        forms = {characters.likeness(label), _without_digits(label)}
        others = [other for other in common if forms.isdisjoint((characters.likeness(other), _without_digits(other)))]
        if close := difflib.get_close_matches(label, others, 1, _CLOSE):
            yield f"{label!r} ({counts[label]}) like {close[0]!r} ({counts[close[0]]})"


def _without_digits(text: str) -> str:
    return re.sub(r"\d", "", text)


def alike(labels: Iterable[str], advice: str = WRITE_ALIKE) -> Iterator[str]:
    """Yield a warning for each group of labels that are probably the same, with advice."""
    counts = collections.Counter(labels)
    for names in _groups(counts, characters.likeness):
        if len(names) > 1:
            can_merge = len({characters.identity(name) for name in names}) < len(names)
            yield (
                "labels that differ only in case, spaces, number format, Unicode form or characters that look alike are "
                "different classes (rows): "
                f"{_counted({name: counts[name] for name in names})}; {advice if can_merge else WRITE_ALIKE}"
            )


def new_labels(earlier: Iterable[Example], rows: Iterable[Example]) -> Iterator[str]:
    """Yield a message with the labels of the rows of a file that no earlier row has, if any: one may be misspelt."""
    known = {row.label for row in earlier}
    if counts := collections.Counter(row.label for row in rows if row.label not in known):
        yield f"labels that earlier files lack are new classes (rows): {_counted(counts)}"


def merge_labels(rows: Sequence[Example]) -> tuple[list[Example], dict[tuple[str, str], int]]:
    """Make labels of one `characters.identity` one label, their most frequent spelling.

    Returns:
        The rows, and the number of rows of each label and the one that it became, where several became one.
    """
    counts = collections.Counter(row.label for row in rows)
    label_of: dict[str, str] = {}
    merged: dict[tuple[str, str], int] = {}
    for names in _groups(counts, characters.identity):
        spellings: collections.Counter[str] = collections.Counter()
        for name in names:
            spellings[characters.tidied(name)] += counts[name]
        label = spellings.most_common(1)[0][0]
        label_of |= dict.fromkeys(names, label)
        if len(names) > 1:
            merged |= {(name, label): counts[name] for name in names}
    return [dataclasses.replace(row, label=label_of[row.label]) for row in rows], merged


def renamed_labels(counts: Mapping[tuple[str, str], int]) -> str:
    """Return a message with the labels that became others, by the rows of each pair."""
    groups: dict[str, dict[str, int]] = collections.defaultdict(dict)
    for (name, label), count in counts.items():
        groups[label][name] = count
    renamings = []
    for label, names in groups.items():
        quote = ascii if characters.look_alike({*names, label}) else repr
        renamings.append(f"{_counted(names, quote)} -> {quote(label)}")
    more = [f"… ({len(groups)} in all)"] if len(groups) > _MAX_GROUPS else []
    return f"merged labels (rows): {'; '.join([*renamings[:_MAX_GROUPS], *more])}"


def _counted(counts: Mapping[str, int], quote: Callable[[str], str] | None = None) -> str:
    """Return labels with their numbers of rows, for a message; by default, escaped where they look the same."""
    quote = quote or (ascii if characters.look_alike(counts) else repr)
    return ", ".join(f"{quote(name)} ({count})" for name, count in counts.items())


def _groups(labels: Iterable[str], key: Callable[[str], Any]) -> list[list[str]]:
    """Return the labels in groups of one key."""
    same = collections.defaultdict(list)
    for label in labels:
        same[key(label)].append(label)
    return list(same.values())


def headers(rows: Iterable[Example], label_column: str) -> Iterator[str]:
    """Yield a warning if a label is the name of its own column: the row may be the header of another table."""
    found = [row for row in rows if row.label == label_column]
    if found:
        more = f" ({len(found)} such rows)" if len(found) > 1 else ""
        yield f"{_line(found[0])} looks like a header, because its label is {label_column!r}{more}: delete it if it is one"


def doubtful_fields(rows: Sequence[Example]) -> Iterator[str]:
    """Yield a warning if fields have few distinct texts beside another field with more: they may be no texts."""
    distinct = {field: len({row.fields[field] for row in rows}) for field in rows[0].fields}
    doubtful = [field for field, count in distinct.items() if count**2 <= len(rows) and count < max(distinct.values())]
    if doubtful:
        subject = f"column {doubtful[0]!r} is" if len(doubtful) == 1 else f"columns {errors.join_names(doubtful)} are"
        counts = sorted({distinct[field] for field in doubtful})
        number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        has, it = ("has", "it") if len(doubtful) == 1 else ("each have", "them")
        remaining = ",".join(name for name in distinct if name not in doubtful)
        yield (
            f"{subject} in the prompt, but {has} only {number} distinct texts in {len(rows)} rows: to leave {it} out, "
            f"add --text_columns={characters.shell_word(remaining)}"
        )


def matches(rows: Iterable[Example], known: Iterable[Example]) -> list[Example]:
    """Return the rows with the text of a known example."""
    texts = set(map(_text, known))
    return [row for row in rows if _text(row) in texts]


def _labels_by_text(rows: Iterable[Example]) -> dict[tuple[str, ...], set[str]]:
    labels = collections.defaultdict(set)
    for example in rows:
        labels[_text(example)].add(example.label)
    return labels


def _text(example: Example) -> tuple[str, ...]:
    return tuple(example.fields.values())
