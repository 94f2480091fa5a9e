"""Predictions as bytes: JSON lines, or CSV that a spreadsheet takes for data."""

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from knnprompt_jax.classifier.predictions import Predictions

KINDS = ("jsonl", "csv")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def header(kind: str, classes: Sequence[Any], all_probabilities: bool) -> bytes:
    """What the output begins with."""
    if kind == "jsonl":
        return b""
    columns = ["row", "label", "probability", "neighbours", "distances"]
    return _csv([*columns, *(f"probability of {label}" for label in classes if all_probabilities)])


def lines(
    kind: str, rows: Sequence[int], predictions: Predictions, classes: Sequence[Any], all_probabilities: bool
) -> bytes:
    """A line (of CSV, a record) for each of these rows, with its prediction.

    Args:
      rows: the numbers of the rows in the input.
      classes: the labels [C] in the order of the probabilities.
    """
    labels, ids_Qk = predictions.labels.tolist(), predictions.ids.tolist()
    written = []
    for row, label, ids_k, shares_C, distances_k in zip(
        rows, labels, ids_Qk, predictions.probabilities, predictions.distances, strict=True
    ):
        shares = {name: _short(share) for name, share in zip(classes, shares_C, strict=True)}
        neighbours = {number: _short(distance) for number, distance in zip(ids_k, distances_k, strict=True)}
        first, every = (row, label, shares[label]), shares if all_probabilities else None
        written.append(_cells(*first, neighbours, every) if kind == "csv" else _json(*first, neighbours, every))
    return b"".join(written)


def _json(row: int, label: Any, probability: float, neighbours: dict[int, float], shares: dict | None) -> bytes:
    near = [{"id": number, "distance": distance} for number, distance in neighbours.items()]
    record = {"row": row, "label": label, "probability": probability, "neighbours": near}
    if shares is not None:
        record["probabilities"] = {str(name): share for name, share in shares.items()}
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def _cells(row: int, label: Any, probability: float, neighbours: dict[int, float], shares: dict | None) -> bytes:
    joined = [" ".join(map(str, values)) for values in (neighbours.keys(), neighbours.values())]
    return _csv([row, _inert(str(label)), probability, *joined, *(shares or {}).values()])


def _inert(text: str) -> str:
    """The text, behind an apostrophe where a spreadsheet would run it as a formula; numbers stay as they are."""
    if not text.startswith(_FORMULA):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def _csv(cells: Sequence[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode()


def _short(value: float) -> float:
    """Seven digits: what float32 holds."""
    return float(f"{value:.7g}")
