"""Raw rows from JSONL and CSV files, each with its place (file:line)."""

import csv
import io
import json
import re
from importlib.resources.abc import Traversable
from typing import Any

from knnprompt_jax import errors

Row = tuple[str, dict[str, Any]]
"""The place of a row and its columns."""

_FILE_NAMES = {"train": ("train.jsonl", "train_subset.jsonl")}


def read_split(folder: Traversable, split: str, restore_dropped: bool) -> list[Row]:
    """The rows of `<split>.jsonl` in a folder; `train_subset.jsonl`, DBPedia's published name, also serves for train.

    With `restore_dropped`, the rows of `<split>_dropped.jsonl`, where there is one, are put back at the line numbers
    (0-based, of the file they were taken from) that their key `line` gives.
    """
    rows = read_jsonl(_find(folder, split))
    dropped = folder / f"{split}_dropped.jsonl"
    return _restored(rows, read_jsonl(dropped)) if restore_dropped and dropped.is_file() else rows


def _find(folder: Traversable, split: str) -> Traversable:
    names = _FILE_NAMES.get(split, (f"{split}.jsonl",))
    for name in names:
        if (folder / name).is_file():
            return folder / name
    found = ", ".join(sorted(entry.name for entry in folder.iterdir())) or "nothing"
    raise errors.UserError(f"{folder / names[0]}: no such file; the folder holds {found}")


def _restored(rows: list[Row], dropped: list[Row]) -> list[Row]:
    restored = list(rows)
    for place, row in dropped:
        if not isinstance(row.get("line"), int):
            raise errors.UserError(f"{place}: lacks 'line', the 0-based line number the row was taken from")
    for place, row in sorted(dropped, key=lambda pair: pair[1]["line"]):
        line = row["line"]
        if not 0 <= line <= len(restored):
            raise errors.UserError(
                f"{place}: line {line} is outside the file it should go back to ({len(restored)} rows)"
            )
        restored.insert(line, (place, {key: value for key, value in row.items() if key != "line"}))
    return restored


def read_jsonl(path: Traversable) -> list[Row]:
    """One JSON object a line; blank lines are passed over."""
    rows = []
    for number, line in enumerate(re.split(r"\r\n|\n|\r", _read_text(path)), start=1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise errors.UserError(
                f"{place}: not JSON: {error}; the file should hold one JSON object a line"
            ) from error
        if not isinstance(row, dict):
            raise errors.UserError(f"{place}: a JSON {type(row).__name__}, not an object with the row's fields")
        rows.append((place, row))
    return rows


def read_csv(path: Traversable) -> list[Row]:
    """Comma-separated rows under a header; a quoted cell may hold newlines (the place is its row's last line)."""
    reader = csv.DictReader(io.StringIO(_read_text(path), newline=""), strict=True)
    rows = []
    try:
        for row in reader:
            place = f"{path}:{reader.line_num}"
            if None in row or None in row.values():
                raise errors.UserError(
                    f"{place}: the number of cells differs from the header's {len(reader.fieldnames)}"
                )
            rows.append((place, row))
    except csv.Error as error:
        raise errors.UserError(f"{path}:{reader.line_num}: not CSV: {error}") from error
    return rows


def _read_text(path: Traversable) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise errors.UserError(f"{path}: cannot read the file: {error.strerror}") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise errors.UserError(f"{path}:{line}: not UTF-8: {error.reason}") from error
