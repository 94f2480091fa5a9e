"""Predictions as bytes: JSON lines, or CSV that a spreadsheet takes for data."""

import csv
import dataclasses
import functools
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from knnprompt_jax import errors, tables
from knnprompt_jax.classifier.predictions import Predictions
from knnprompt_jax.tasks import task as task_lib
from knnprompt_jax.tasks.task import Example

KINDS = ("jsonl", "csv")
IDS, ALL, NONE = "ids", "all", "none"
_OURS = ("row", "label", "probability", "neighbours", "distances")


def kept(keep: str, columns: Iterable[str]) -> tuple[str, ...]:
    """The columns of an input that are written too: those `named as ids`, all, none, or those of a list with commas.

    Raises:
      UserError: the input lacks a column of the list.
    """
    columns = tuple(columns)
    if keep in (IDS, ALL, NONE):
        return tuple(name for name in columns if keep == ALL or (keep == IDS and task_lib.is_named_as_identifier(name)))
    names = tuple(dict.fromkeys(name.strip() for name in keep.split(",") if name.strip()))
    if missing := [name for name in names if name not in columns]:
        raise errors.UserError(
            f"keep={keep!r}: the input has no column {missing[0]!r}; choose from {IDS}, {ALL}, {NONE}, {task_lib.listed(columns)}"
        )
    return names


@dataclasses.dataclass(frozen=True)
class Format:
    """How predictions are written.

    Attributes:
      kind: one of `KINDS`.
      classes: the labels [C] in the order of the probabilities.
      all_probabilities: whether those of all classes are written.
      kept: the columns of the input that are written too.
    """

    kind: str
    classes: tuple[Any, ...]
    all_probabilities: bool
    kept: tuple[str, ...] = ()

    @functools.cached_property
    def probability_columns(self) -> tuple[str, ...]:
        """Of CSV, a name for each class."""
        return _without_clashes(["_".join(["probability", *str(label).split()]) for label in self.classes], _OURS)

    @functools.cached_property
    def kept_as(self) -> tuple[str, ...]:
        """What the kept columns are called, where a name may be one of ours."""
        ours = {*_OURS, "probabilities", *self.probability_columns}
        return _without_clashes([f"input_{name}" if name in ours else name for name in self.kept], ours)

    def header(self) -> bytes:
        """What the output begins with."""
        if self.kind == "jsonl":
            return b""
        probabilities = self.probability_columns if self.all_probabilities else ()
        return _csv(["row", *map(tables.to_cell, self.kept_as), *_OURS[1:], *probabilities])

    def lines(self, examples: Sequence[Example], predictions: Predictions) -> bytes:
        """A line (of CSV, a record) for each of these rows, with its prediction; `other` of a row has the input's columns."""
        write, written = self._cells if self.kind == "csv" else self._json, []
        answers = predictions.labels.tolist(), predictions.ids.tolist()
        numbers = predictions.probabilities, predictions.distances
        for example, label, ids_k, shares_C, distances_k in zip(examples, *answers, *numbers, strict=True):
            shares = {name: _short(share) for name, share in zip(self.classes, shares_C, strict=True)}
            neighbours = {number: _short(distance) for number, distance in zip(ids_k, distances_k, strict=True)}
            columns = {name: example.other.get(column) for name, column in zip(self.kept_as, self.kept, strict=True)}
            written.append(write(example.row, columns, label, shares, neighbours))
        return b"".join(written)

    def _json(self, row: int, columns: Mapping[str, Any], label: Any, shares: dict, neighbours: dict) -> bytes:
        near = [{"id": number, "distance": distance} for number, distance in neighbours.items()]
        kept = {name: _finite(value) for name, value in columns.items()}
        record = {"row": row, **kept, "label": label, "probability": _probability(label, shares), "neighbours": near}
        if self.all_probabilities:
            record["probabilities"] = {str(name): share for name, share in shares.items()}
        # Half a surrogate pair, which a column may hold that is no text of the task, becomes the escape that JSON has for it.
        return json.dumps(record, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace") + b"\n"

    def _cells(self, row: int, columns: Mapping[str, Any], label: Any, shares: dict, neighbours: dict) -> bytes:
        joined = [" ".join(map(str, values)) for values in (neighbours.keys(), neighbours.values())]
        every = shares.values() if self.all_probabilities else ()
        kept = [tables.to_cell(_text(value)) for value in columns.values()]
        return _csv([row, *kept, tables.to_cell(_text(label)), _probability(label, shares), *joined, *every])


def _probability(label: Any, shares: dict[Any, float]) -> float:
    """That of the label, or of the likeliest class where there is none."""
    return max(shares.values()) if label is None else shares[label]


def _without_clashes(names: Iterable[str], taken: Iterable[str]) -> tuple[str, ...]:
    """The names, with underscores after those that are taken already."""
    used, free = {*taken}, []
    for name in names:
        while name in used:
            name += "_"
        used.add(name)
        free.append(name)
    return tuple(free)


def _text(value: Any) -> str:
    """A cell; what JSON nests stays JSON."""
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, default=str)
    return "" if value is None else str(value)


def _finite(value: Any) -> Any:
    """The value; JSON has no name for numbers that are none."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _csv(cells: Sequence[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode("utf-8", "backslashreplace")


def _short(value: float) -> float:
    """Seven digits: what float32 holds."""
    return float(f"{value:.7g}")
