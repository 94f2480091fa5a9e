"""Predictions as bytes: JSON lines, or CSV that a spreadsheet does not run as formulas."""

import csv
import dataclasses
import functools
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from knnprompt_jax import errors, tables
from knnprompt_jax.classifier.inputs import Predictions
from knnprompt_jax.tasks import task as task_lib
from knnprompt_jax.tasks.task import Example

KINDS = ("jsonl", "csv")
IDS, ALL, NONE = "ids", "all", "none"
_OURS = ("row", "label", "probability", "neighbours", "distances")


def kept(keep: str, columns: Iterable[str]) -> tuple[str, ...]:
    """Return the columns of an input to copy: those named as ids, all, none, or a list with commas.

    Raises:
      UserError: the input lacks a column of the list.
    """
    columns = tuple(columns)
    if keep in (IDS, ALL, NONE):
        return tuple(name for name in columns if keep == ALL or (keep == IDS and task_lib.is_named_as_identifier(name)))
    names = tuple(dict.fromkeys(name.strip() for name in keep.split(",") if name.strip()))
    if missing := [name for name in names if name not in columns]:
        raise errors.UserError(
            f"--keep={keep}: the input has no column {missing[0]!r}; choose from {IDS}, {ALL}, {NONE}, {task_lib.listed(columns)}"
        )
    return names


@dataclasses.dataclass(frozen=True)
class Format:
    """The form in which predictions are written.

    Attributes:
      kind: one of `KINDS`.
      classes: the labels [C] in the order of the probabilities.
      all_probabilities: whether the probabilities of all classes are written.
      kept: the columns of the input that are copied.
    """

    kind: str
    classes: tuple[Any, ...]
    all_probabilities: bool
    kept: tuple[str, ...] = ()

    @functools.cached_property
    def probability_columns(self) -> tuple[str, ...]:
        """The CSV column of each class."""
        return _without_clashes(["_".join(["probability", *str(label).split()]) for label in self.classes], _OURS)

    @functools.cached_property
    def kept_as(self) -> tuple[str, ...]:
        """The output names of the kept columns, which must not clash with our own."""
        ours = {*_OURS, "probabilities", *self.probability_columns}
        return _without_clashes([f"input_{name}" if name in ours else name for name in self.kept], ours)

    def header(self) -> bytes:
        """Return the header of the output."""
        if self.kind == "jsonl":
            return b""
        probabilities = self.probability_columns if self.all_probabilities else ()
        return _csv(["row", *map(tables.to_cell, self.kept_as), *_OURS[1:], *probabilities])

    def lines(self, examples: Sequence[Example], predictions: Predictions) -> bytes:
        """Return a line (a record in CSV) for each of these rows, with its prediction."""
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
        # A lone surrogate, which other columns than the texts may hold, becomes an escape.
        return json.dumps(record, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace") + b"\n"

    def _cells(self, row: int, columns: Mapping[str, Any], label: Any, shares: dict, neighbours: dict) -> bytes:
        joined = [" ".join(map(str, values)) for values in (neighbours.keys(), neighbours.values())]
        every = shares.values() if self.all_probabilities else ()
        kept = [tables.to_cell(_text(value)) for value in columns.values()]
        return _csv([row, *kept, tables.to_cell(_text(label)), _probability(label, shares), *joined, *every])


def _probability(label: Any, shares: dict[Any, float]) -> float:
    """Return the probability of the label, or of the likeliest class if there is no label."""
    return max(shares.values()) if label is None else shares[label]


def _without_clashes(names: Iterable[str], taken: Iterable[str]) -> tuple[str, ...]:
    """Append underscores to names that are taken already."""
    used, free = {*taken}, []
    for name in names:
        while name in used:
            name += "_"
        used.add(name)
        free.append(name)
    return tuple(free)


def _text(value: Any) -> str:
    """Return a cell; nested values stay JSON."""
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, default=str)
    return "" if value is None else str(value)


def _finite(value: Any) -> Any:
    """Return the value, or None for a number that JSON cannot write."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _csv(cells: Sequence[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode("utf-8", "backslashreplace")


def _short(value: float) -> float:
    """Round to seven digits, which float32 holds."""
    return float(f"{value:.7g}")
