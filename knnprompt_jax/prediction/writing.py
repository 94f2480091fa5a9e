"""Predictions as bytes: JSON lines, or CSV that a spreadsheet takes for data."""

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from knnprompt_jax.classifier.predictions import Predictions

KINDS = ("jsonl", "csv")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def header(kind: str, classes: Sequence[Any], all_probabilities: bool) -> bytes:
    """What the output begins with."""
    if kind == "jsonl":
        return b""
    columns = ["row", "label", "probability", "neighbours", "distances"]
    return _csv([columns + [f"probability of {label}" for label in classes if all_probabilities]])


def lines(kind: str, rows: Sequence[int], answers: Predictions, classes: np.ndarray, all_probabilities: bool) -> bytes:
    """A line (of CSV, a record) for each of these rows, with their answers.

    Args:
      rows: the numbers of the rows in the input.
      classes: the labels [C] in the order of the probabilities.
    """
    column = {label: index for index, label in enumerate(classes.tolist())}
    records = []
    for row, label, shares_C, ids_k, distances_k in zip(
        rows, answers.labels.tolist(), answers.probabilities, answers.ids.tolist(), answers.distances, strict=True
    ):
        shares = [_short(share) for share in shares_C]
        records.append((row, label, shares[column[label]], ids_k, [_short(value) for value in distances_k], shares))
    if kind == "csv":
        return _csv([_cells(*record, all_probabilities) for record in records])
    return b"".join(_json(*record, classes if all_probabilities else None) for record in records)


def _json(
    row: int,
    label: Any,
    probability: float,
    ids: list[int],
    distances: list[float],
    shares: list[float],
    classes: np.ndarray | None,
) -> bytes:
    neighbours = [{"id": id_, "distance": distance} for id_, distance in zip(ids, distances, strict=True)]
    record = {"row": row, "label": label, "probability": probability, "neighbours": neighbours}
    if classes is not None:
        record["probabilities"] = {str(name): share for name, share in zip(classes.tolist(), shares, strict=True)}
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def _cells(
    row: int,
    label: Any,
    probability: float,
    ids: list[int],
    distances: list[float],
    shares: list[float],
    all_probabilities: bool,
) -> list[Any]:
    joined = [" ".join(map(str, ids)), " ".join(map(str, distances))]
    return [row, _inert(str(label)), probability, *joined, *(shares if all_probabilities else [])]


def _inert(text: str) -> str:
    """The text, behind an apostrophe where a spreadsheet would run it as a formula; numbers stay as they are."""
    if not text.startswith(_FORMULA):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def _csv(records: Sequence[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(records)
    return text.getvalue().encode()


def _short(value: float) -> float:
    """Seven digits: what float32 holds."""
    return float(f"{value:.7g}")
