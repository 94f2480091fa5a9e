"""A folder of results → what each experiment left there."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from knnprompt_jax import errors
from knnprompt_jax.runs import records as records_lib

MAX_SHOTS = "max_shots"
CASE_STUDY = "case_study"
_STATISTICS = {"task", "num_classes", "average_template_tokens", "context", "max_shots"}


@dataclasses.dataclass(frozen=True)
class Results:
    """Records by experiment, and the rows of the task statistics."""

    folder: pathlib.Path
    records: Mapping[str, list[records_lib.Record]]
    statistics: list[dict[str, Any]]


def read(folder: pathlib.Path, experiments: tuple[str, ...]) -> Results:
    """What these experiments left in the folder's sub-folders of their names.

    Raises:
        UserError: there is no such folder, nothing of any experiment in it, or a file that is no record of this version.
    """
    if not folder.is_dir():
        raise errors.UserError(f"{folder}: no such folder of results")
    present = [name for name in experiments if any((folder / name).glob("*.json"))]
    if not present:
        raise errors.UserError(
            f"{folder}: no results: records are expected in a folder of it named {', '.join(experiments[:3])} …"
        )
    found = {name: _records(folder / name, name) for name in present if name != MAX_SHOTS}
    statistics = _statistics(folder / MAX_SHOTS / f"{MAX_SHOTS}.json") if MAX_SHOTS in present else []
    return Results(folder, found, statistics)


def _records(folder: pathlib.Path, experiment: str) -> list[records_lib.Record]:
    found = records_lib.read_all(folder)
    for record in found:
        if record.experiment != experiment:
            raise errors.UserError(f"{folder}/{record.name}: a record of {record.experiment or 'no experiment'!r}")
    return found


def _statistics(path: pathlib.Path) -> list[dict[str, Any]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise errors.UserError(f"{path}: no task statistics: {error}") from None
    rows = content.get("rows") if isinstance(content, dict) else None
    if not isinstance(rows, list) or not rows or any(not set(row) >= _STATISTICS for row in rows):
        raise errors.UserError(f"{path}: no task statistics: rows with {', '.join(sorted(_STATISTICS))} are expected")
    return rows
