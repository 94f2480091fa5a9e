"""Predictions as JSON lines or CSV, on standard output or in a file that an interrupted run continues."""

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from knnprompt_jax.classifier.arguments import Predictions
from knnprompt_jax.common import errors, files, progress, text_tables
from knnprompt_jax.tasks.task import Example

_OWN = ("label", "probability", "novelty", "neighbours")


def renamed(names: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Return names of columns, with the prefix `input_` where a name is taken."""
    free: list[str] = []
    for name in names:
        while name in {*free, *taken}:
            name = f"input_{name}"
        free.append(name)
    return free


@dataclasses.dataclass(frozen=True)
class Format:
    """The format of predictions.

    Attributes:
        kind: "jsonl" or "csv".
        classes: the labels [C] in the order of the probabilities.
        copied: the columns of the input that are copied.
        probabilities: whether the probabilities of all classes are written.
        neighbours: whether the nearest anchors are written.
    """

    kind: str
    classes: Sequence[Any]
    copied: Sequence[str] = ()
    probabilities: bool = False
    neighbours: bool = False

    @functools.cached_property
    def _names(self) -> list[str]:
        """The names of the copied columns in the output."""
        return renamed(self.copied, ["row", *_OWN, "probabilities", *self._shares])

    @property
    def _shares(self) -> list[str]:
        """The CSV column of each class's probability."""
        return [f"probability_{label}" for label in self.classes]

    def header(self) -> bytes:
        """Return the header of the output."""
        own = _OWN if self.neighbours else _OWN[:3]
        columns = ["row", *self._names, *own, *(self._shares if self.probabilities else ())]
        return text_tables.to_csv([columns]) if self.kind == "csv" else b""

    def lines(self, examples: Sequence[Example], predictions: Predictions) -> bytes:
        """Return a line (a record in CSV) for each of these rows, with its prediction."""
        labels = predictions.labels.tolist()
        records = [self._record(example, labels[index], predictions, index) for index, example in enumerate(examples)]
        if self.kind == "csv":
            return text_tables.to_csv(map(_cells, records), is_first=False)
        # Copied columns may hold lone surrogates; each becomes an escape.
        lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
        return "".join(lines).encode("utf-8", "backslashreplace")

    def _record(self, example: Example, label: Any, predictions: Predictions, index: int) -> dict[str, Any]:
        assert predictions.novelty is not None
        p_C = [_rounded(p) for p in predictions.probabilities[index]]
        # JSON has dates as text, and None for infinite numbers and NaN.
        cells = json.dumps([example.extra.get(column) for column in self.copied], default=str)
        copied = json.loads(cells, parse_constant=lambda name: None)
        record = {
            "row": example.row,
            **dict(zip(self._names, copied, strict=True)),
            "label": label,
            "probability": max(p_C),  # That of the likeliest class, even if the label is None.
            "novelty": _rounded(predictions.novelty[index]),
        }
        if self.neighbours:
            near = zip(predictions.ids[index].tolist(), predictions.distances[index], strict=True)
            record["neighbours"] = [{"id": number, "distance": _rounded(distance)} for number, distance in near]
        if self.probabilities:
            record["probabilities"] = dict(zip(map(str, self.classes), p_C, strict=True))
        return record


def _cells(record: dict[str, Any]) -> list[str]:
    shares = record.pop("probabilities", {})
    return [to_text(value) for value in (*record.values(), *shares.values())]


def to_text(value: Any) -> str:
    """Return a cell as text; nested values stay JSON."""
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else str(value)


def _rounded(value: np.floating) -> float:
    """Round to seven digits, the precision of float32."""
    return float(f"{value:.7g}")


class StandardOutput:
    """Standard output. `rows` counts the rows of the input that are finished."""

    rows = 0

    def write(self, content: bytes, rows: int) -> None:
        """Append the predictions of a batch, after which `rows` rows of the input are finished."""
        self.rows = rows
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()

    def finish(self) -> None:
        """Complete the output."""


class FileOutput(StandardOutput):
    """A file. While it is written, `.<name>.writing` grows, and `.<name>.progress` notes how much is finished."""

    def __init__(self, path: pathlib.Path, job: str, header: bytes, overwrite: bool = False):
        """Begin the file, or continue after the last complete batch of the same job.

        Args:
            path: the file, which the caller has locked.
            job: the digest of everything that the predictions depend on.
            header: the first bytes of the file.
            overwrite: whether to replace an earlier file once the new one is complete.

        Raises:
            UserError: the file exists already, or cannot be written.
        """
        self._path = path
        self._job = job
        self._draft = files.draft(path)
        self._note = self._draft.with_suffix(".progress")
        with files.refusals(path):
            self.rows, self._bytes = self._finished()
            if not self._bytes:
                self._note.unlink(missing_ok=True)
            if path.exists() and not overwrite:
                raise errors.UserError(f"{path}: exists already; choose another file, or add --overwrite")
            if self._draft.exists() and not self._bytes:
                progress.note(f"{path}: starting anew: the unfinished output has another input or other options")
            with self._draft.open("ab") as file:
                file.truncate(self._bytes)
        if not self._bytes:
            self.write(header, 0)

    def _finished(self) -> tuple[int, int]:
        """Return the numbers of rows of the input and of bytes that an earlier run of the same job finished."""
        with contextlib.suppress(OSError, ValueError, LookupError):
            note = json.loads(self._note.read_bytes())
            if note["job"] == self._job and note["bytes"] <= self._draft.stat().st_size:
                return note["rows"], note["bytes"]
        return 0, 0

    def write(self, content: bytes, rows: int) -> None:
        """Append the predictions of a batch durably, after which `rows` rows of the input are finished."""
        with files.refusals(self._path), self._draft.open("ab") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        self.rows = rows
        self._bytes += len(content)
        files.write(self._note, json.dumps({"job": self._job, "rows": rows, "bytes": self._bytes}))

    def finish(self) -> None:
        """Move the complete file to its path."""
        with files.refusals(self._path):
            files.finish_file(self._path)
            self._note.unlink(missing_ok=True)
