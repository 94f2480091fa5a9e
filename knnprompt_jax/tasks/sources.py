"""Examples from local files, from the Hugging Face Hub, or from the embedded demo; every row is checked."""

import pathlib
from collections.abc import Mapping
from importlib.resources.abc import Traversable
from typing import Any

from knnprompt_jax import errors
from knnprompt_jax.tasks import catalogue, files, hub
from knnprompt_jax.tasks.hub import HubSource
from knnprompt_jax.tasks.task import Example, Task


def load_rows(
    task: Task,
    split: str,
    *,
    data_dir: str | None = None,
    csv_path: str | None = None,
    hub_source: HubSource | None = None,
    restore_dropped: bool = False,
) -> list[Example]:
    """Loads one split of a task from one place.

    Args:
      task: says which columns a row must have and which labels there are.
      split: "train", "dev_subsample", "test", … the file is `<data_dir>/<task.name>/<split>.jsonl`.
      data_dir: the folder of task folders in the published layout.
      csv_path: a CSV file with a header; it holds the split alone.
      hub_source: a dataset on the Hub, from `catalogue.hub_source` or one's own.
      restore_dropped: put the rows of `train_dropped.jsonl` back, which makes the published train file whole.

    Without a place, the demo task comes from the package.

    Raises:
      UserError: with file and line, on a missing, empty or malformed file, and on a row that lacks a field or a label,
        has an empty text, one that is not a string, or an unknown label.
    """
    given = [place for place in (data_dir, csv_path, hub_source) if place is not None]
    if len(given) > 1:
        raise errors.UserError("choose one place for the rows: data_dir, csv_path or hub_source")
    if hub_source is not None:
        where, rows = hub_source.dataset, hub.read(hub_source, split)
    elif csv_path is not None:
        where, rows = csv_path, files.read_csv(pathlib.Path(csv_path))
    else:
        folder = _task_folder(task, data_dir)
        where, rows = f"{folder / split}.jsonl", files.read_split(folder, split, restore_dropped)
    if not rows:
        raise errors.UserError(f"{where}: no rows")
    if not any("label" in row for _, row in rows):
        raise errors.UserError(
            f"{where}: split {split!r} of task {task.name!r} is unlabelled: no row has a 'label'; choose another split"
        )
    return [_example(task, place, row, index) for index, (place, row) in enumerate(rows)]


def _task_folder(task: Task, data_dir: str | None) -> Traversable:
    if data_dir is not None:
        folder = pathlib.Path(data_dir) / task.name
        if not folder.is_dir():
            parent = pathlib.Path(data_dir)
            found = ", ".join(sorted(entry.name for entry in parent.iterdir())) if parent.is_dir() else ""
            raise errors.UserError(f"{folder}: no such folder; {data_dir} holds {found or 'nothing'}")
        return folder
    if task.name == catalogue.DEMO:
        return catalogue.demo_folder()
    raise errors.UserError(
        f"task {task.name!r} needs rows: give data_dir (holding {task.name}/train.jsonl), csv_path or hub_source; "
        f"only {catalogue.DEMO!r} comes with the package"
    )


def _example(task: Task, place: str, row: Mapping[str, Any], index: int) -> Example:
    for field in task.fields:
        if field not in row:
            raise errors.UserError(f"{place}: lacks the field {field!r}; it has {', '.join(map(str, row)) or 'none'}")
        if not isinstance(row[field], str):
            raise errors.UserError(f"{place}: field {field!r} is a {type(row[field]).__name__}, not a string")
        if not row[field].strip():
            raise errors.UserError(f"{place}: field {field!r} is empty")
    return Example(
        fields={field: row[field] for field in task.fields},
        label=_label(task, place, row),
        row=index,
        source=place,
        other={key: value for key, value in row.items() if key not in task.fields and key != "label"},
    )


def _label(task: Task, place: str, row: Mapping[str, Any]) -> str:
    if "label" not in row:
        raise errors.UserError(f"{place}: lacks the field 'label'; it has {', '.join(map(str, row))}")
    label = row["label"]
    if isinstance(label, int) and not isinstance(label, bool):
        label = str(label)
    if label not in task.labels:
        raise errors.UserError(f"{place}: unknown label {label!r}; choose from {', '.join(task.labels)}")
    return label
