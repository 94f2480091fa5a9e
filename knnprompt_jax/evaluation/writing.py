"""Measures as JSON, as CSV and as text for the terminal."""

import csv
import dataclasses
import io
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from knnprompt_jax import files, tables
from knnprompt_jax.evaluation.measures import CONFIDENCE, Measures

COVERAGES = (0.5, 0.8, 0.9, 1.0)


def write(measured: Measures, folder: pathlib.Path, about: Mapping[str, Any]) -> None:
    """Write measures.json, which begins with `about`, and measures.csv into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    content = json.dumps({**about, **to_dict(measured)}, indent=1, ensure_ascii=False) + "\n"
    for name, text in {"measures.json": content, "measures.csv": to_csv(measured)}.items():
        with files.new_file(folder / name) as unfinished:
            unfinished.write_text(text, encoding="utf-8")


def to_dict(measured: Measures) -> dict[str, Any]:
    """Return all measures by name; shares are from 0 to 1."""
    low, high = measured.interval
    return {
        "rows": len(measured.y_Q),
        "accuracy": measured.accuracy,
        "accuracy_interval": {"low": low, "high": high, "confidence": CONFIDENCE, "method": "wilson"},
        "commonest_class": commonest(measured),
        "macro_f1": measured.macro_f1,
        "log_loss": measured.log_loss,
        "impossible_rows": measured.impossible,
        "brier_score": measured.brier,
        "expected_calibration_error": measured.calibration_error,
        "classes": [dataclasses.asdict(each) for each in measured.per_class],
        "confusion": {"labels": list(measured.labels), "counts": measured.confusion_CC.tolist()},
        "risk_coverage": [dataclasses.asdict(point) for point in measured.coverage],
    }


def to_csv(measured: Measures) -> str:
    """Return a line per number: measure, class (empty for all), value."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["measure", "class", "value"])
    content = to_dict(measured)
    writer.writerows((name, "", value) for name, value in content.items() if isinstance(value, int | float))
    writer.writerows((f"accuracy_{end}", "", content["accuracy_interval"][end]) for end in ("low", "high"))
    for each in content["classes"]:
        writer.writerows((name, each["label"], each[name]) for name in ("rows", "precision", "recall", "f1"))
    return file.getvalue()


def table(measured: Measures) -> str:
    """Return the measures of all rows and of each class as text."""
    low, high = measured.interval
    rows = [
        [each.label, f"{each.rows:,}", *(f"{100 * share:.1f}" for share in (each.precision, each.recall, each.f1))]
        for each in measured.per_class
    ]
    covered = ", ".join(
        f"{100 * each.coverage:.0f} %: {100 * each.accuracy:.1f}"
        for each in dict.fromkeys(map(measured.at_coverage, COVERAGES))
    )
    return "\n".join(
        [
            f"accuracy {100 * measured.accuracy:.1f} % ({100 * CONFIDENCE:.0f} % interval {100 * low:.1f} to {100 * high:.1f}) of "
            f"{len(measured.y_Q):,} rows; always predicting the commonest class {100 * commonest(measured):.1f} %",
            f"macro F1 {100 * measured.macro_f1:.1f} %, log loss {measured.log_loss:.3f}, Brier score {measured.brier:.3f}, "
            f"expected calibration error {100 * measured.calibration_error:.1f} points",
            f"accuracy on the rows of highest probability, by their share of all rows: {covered}",
            "",
            tables.render(["class", "rows", "precision %", "recall %", "F1 %"], rows),
        ]
    )


def commonest(measured: Measures) -> float:
    """Return the share of the commonest class: the accuracy of always predicting it."""
    return float(np.bincount(measured.y_Q).max() / len(measured.y_Q))
