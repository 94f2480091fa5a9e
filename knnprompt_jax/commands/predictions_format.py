"""Predictions as bytes: JSON lines, or CSV that a spreadsheet does not run as formulas."""

import dataclasses
import functools
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from absl import logging

from knnprompt_jax import errors, tables
from knnprompt_jax.classifier.inputs import Predictions
from knnprompt_jax.settings.commands import IDS
from knnprompt_jax.tasks import cells
from knnprompt_jax.tasks.task import Example

ALL, NONE = "all", "none"
_OURS = ("row", "label", "probability", "novelty", "neighbours", "distances")


def kept(keep: str, columns: Iterable[str], is_ragged: bool = False) -> tuple[str, ...]:
    """Return the columns of an input to copy.

    Args:
        keep: "ids" (columns named like ids), "all", "none", or names separated by commas.
        columns: the columns of the input, or of its first row.
        is_ragged: whether each row has its own columns, as JSON lines do: a warning names missing columns.

    Raises:
        UserError: the input lacks a named column.
    """
    columns = tuple(columns)
    if keep in (IDS, ALL, NONE):
        return tuple(name for name in columns if keep == ALL or (keep == IDS and cells.is_named_as_identifier(name)))
    names = tuple(dict.fromkeys(name.strip() for name in keep.split(",") if name.strip()))
    missing = [name for name in names if name not in columns]
    if missing and is_ragged:
        logging.warning("--keep=%s: the first row has no column %r; rows without it get null", keep, missing[0])
    elif missing:
        choices = errors.join_names([IDS, ALL, NONE, *columns])
        raise errors.UserError(f"--keep={keep}: the input has no column {missing[0]!r}; choose from {choices}")
    return names


@functools.lru_cache(maxsize=256)
def renamed(names: tuple[str, ...], taken: tuple[str, ...]) -> tuple[str, ...]:
    """Return names of columns, with the prefix `input_` where a name is taken."""
    free: list[str] = []
    for name in names:
        while name in {*free, *taken}:
            name = f"input_{name}"
        free.append(name)
    return tuple(free)


def to_text(value: Any) -> str:
    """Return a cell; nested values stay JSON."""
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, default=str)
    return "" if value is None else str(value)


@dataclasses.dataclass(frozen=True)
class Format:
    """The format of predictions.

    Attributes:
        kind: one of `KINDS`.
        classes: the labels [C] in the order of the probabilities.
        all_probabilities: whether the probabilities of all classes are written.
        kept: the columns of the input that are copied.
        has_neighbours: whether the nearest anchors are written.
        keep: the value of --keep; with "ids" or "all", JSON lines also copy columns that only later rows have.
    """

    kind: str
    classes: tuple[Any, ...]
    all_probabilities: bool
    kept: tuple[str, ...] = ()
    keep: str = NONE
    has_neighbours: bool = False

    @property
    def probability_columns(self) -> tuple[str, ...]:
        """The CSV column of each class."""
        return tuple(f"probability_{label}" for label in self.classes)

    def kept_as(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the output names of kept columns, distinct from our own columns."""
        return renamed(tuple(names), (*_OURS, "probabilities", *self.probability_columns))

    def header(self) -> bytes:
        """Return the header of the output."""
        if self.kind == "jsonl":
            return b""
        probabilities = self.probability_columns if self.all_probabilities else ()
        own = _OURS[1:] if self.has_neighbours else _OURS[1:4]
        return _csv([["row", *map(tables.to_cell, self.kept_as(self.kept)), *own, *probabilities]])

    def lines(self, examples: Sequence[Example], predictions: Predictions) -> bytes:
        """Return a line (a record in CSV) for each of these rows, with its prediction."""
        labels = predictions.labels.tolist()
        ids = predictions.ids.tolist()
        assert predictions.novelty is not None
        novelty = predictions.novelty.tolist()
        answers = zip(labels, predictions.probabilities, novelty, ids, predictions.distances, strict=True)
        records = [self._record(example, *answer) for example, answer in zip(examples, answers, strict=True)]
        if self.kind == "csv":
            return _csv(map(self._cells, records))
        lines = [json.dumps(record, ensure_ascii=False, default=str) + "\n" for record in records]
        # Columns besides the texts may hold lone surrogates; each becomes an escape.
        return "".join(lines).encode("utf-8", "backslashreplace")

    def _record(
        self,
        example: Example,
        label: Any,
        probabilities_C: np.ndarray,
        novelty: float,
        ids_k: list[int],
        distances_k: np.ndarray,
    ) -> dict[str, Any]:
        shares = {name: _short(share) for name, share in zip(self.classes, probabilities_C, strict=True)}
        names = self._copied(example)
        columns = [_finite(example.extra.get(column)) for column in names]
        record = {
            "row": example.row,
            **dict(zip(self.kept_as(names), columns, strict=True)),
            "label": label,
            # If the classifier abstains, this is the probability of the likeliest class.
            "probability": max(shares.values()) if label is None else shares[label],
            "novelty": _short(novelty),
        }
        if self.has_neighbours:
            near = zip(ids_k, distances_k, strict=True)
            record["neighbours"] = [{"id": number, "distance": _short(distance)} for number, distance in near]
        if self.all_probabilities:
            record["probabilities"] = {str(name): share for name, share in shares.items()}
        return record

    def _copied(self, example: Example) -> tuple[str, ...]:
        """Return the columns of a row to copy; warn once if CSV cannot hold a column that the first row lacks."""
        if self.keep not in (IDS, ALL):
            return self.kept
        more = tuple(name for name in kept(self.keep, example.extra) if name not in self.kept)
        if self.kind == "jsonl" or not more:
            return (*self.kept, *more)
        message = "row %d has a column %r that the first row lacks: it is not copied (--output_format=jsonl copies it)"
        logging.log_first_n(logging.WARNING, message, 1, example.row, more[0])
        return self.kept

    def _cells(self, record: dict[str, Any]) -> list[Any]:
        near = record.get("neighbours", ())
        neighbours = [" ".join(str(neighbour[name]) for neighbour in near) for name in ("id", "distance")]
        texts = [to_text(record[name]) for name in (*self.kept_as(self.kept), "label")]
        probabilities = record.get("probabilities", {}).values()
        return [
            record["row"],
            *map(tables.to_cell, texts),
            record["probability"],
            record["novelty"],
            *(neighbours if self.has_neighbours else ()),
            *probabilities,
        ]


def _finite(value: Any) -> Any:
    """Return the value with None for each number that JSON cannot represent."""
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return list(map(_finite, value))
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _csv(rows: Iterable[Sequence[Any]]) -> bytes:
    return tables.to_csv(rows).encode("utf-8", "backslashreplace")


def _short(value: float) -> float:
    """Round to seven digits, the precision of float32."""
    return float(f"{value:.7g}")
