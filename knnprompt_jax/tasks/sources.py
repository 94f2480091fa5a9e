"""Examples from local files, from the Hugging Face Hub, or from the embedded demo; every row is validated."""

import pathlib
import re
from collections.abc import Mapping, Sequence
from importlib.resources.abc import Traversable
from typing import Any

from knnprompt_jax import errors
from knnprompt_jax.tasks import catalogue, formats, hub
from knnprompt_jax.tasks.hub import HubSource
from knnprompt_jax.tasks.task import Example, Task, label_string, listed

_FILE_NAMES = {"train": ("train.jsonl", "train_subset.jsonl")}
_SURROGATE = re.compile("[\ud800-\udfff]")


def load_rows(
    task: Task,
    split: str,
    *,
    data_dir: str | None = None,
    path: str | None = None,
    encoding: str = "utf-8",
    hub_source: HubSource | None = None,
    restore_dropped: bool = False,
    label_column: str = "label",
) -> list[Example]:
    """Load one split of a task from one place; without a place, the demo task comes from the package.

    Args:
      task: declares the fields and labels of the rows.
      split: "train", "dev_subsample", "test", … the file is `<data_dir>/<task.name>/<split>.jsonl`.
      data_dir: the folder of task folders in the published layout.
      path: a CSV, TSV (both with a header), JSONL or Parquet file that holds only this split.
      encoding: the encoding of a text file at `path`.
      hub_source: a dataset on the Hub, for example from `catalogue.hub_source`.
      restore_dropped: add the rows of `train_dropped.jsonl`, which completes the published train file.
      label_column: the name of the label column in files.

    Raises:
      UserError: with file and line, if a file is missing, empty or malformed, or a row has a missing, empty or non-string text
        or a missing or unknown label.
    """
    if sum(place is not None for place in (data_dir, path, hub_source)) > 1:
        raise errors.UserError("choose one place for the rows: --data_dir, --train_file with --eval_file, or --hub")
    if hub_source is not None:
        where, rows = hub_source.dataset, hub.read(hub_source, split)
    elif path is not None:
        where, rows = path, list(formats.read(pathlib.Path(path), encoding))
    else:
        folder = _task_folder(task, data_dir)
        where, rows = f"{folder / split}.jsonl", read_split(folder, split, restore_dropped)
    if not rows:
        raise errors.UserError(f"{where}: no rows")
    return [to_example(task, place, row, index, label_column) for index, (place, row) in enumerate(rows)]


def infer(path: str, encoding: str = "utf-8", label_column: str = "label", fields: Sequence[str] = ()) -> Task:
    """Return the task inferred from a file's columns, like `Task.infer`; raise UserError with the file if that fails."""
    rows = [row for _, row in formats.read(pathlib.Path(path), encoding)]
    try:
        return Task.infer(rows, label=label_column, fields=fields or None)
    except errors.UserError as error:
        raise errors.UserError(f"{path}: {error}") from None


def labels_in(path: str, encoding: str = "utf-8", label_column: str = "label") -> set[str]:
    """Return the labels in a file; raise UserError with file and line if a label is neither a text nor a whole number."""
    rows = formats.read(pathlib.Path(path), encoding)
    return {label_string(place, row[label_column]) for place, row in rows if label_column in row}


def _task_folder(task: Task, data_dir: str | None) -> Traversable:
    if data_dir is None and task.name == catalogue.DEMO:
        return catalogue.demo_folder()
    folder = pathlib.Path(data_dir or "") / task.name
    if data_dir is not None and folder.is_dir():
        return folder
    missing = f"task {task.name!r}: its rows are not here (only those of {catalogue.DEMO!r} come with the package)"
    if data_dir is not None:
        missing = f"--data_dir={data_dir}: no such folder"
        if folder.parent.is_dir():
            missing = f"{folder}: no such folder; {data_dir} holds {_content(folder.parent)}"
    hub = ""
    if task.name in catalogue.names() and task.name != catalogue.DEMO:
        hub = f"--hub ({catalogue.hub_source(task.name).dataset} on the Hugging Face Hub), "
    raise errors.UserError(
        f"{missing}; choose {hub}--data_dir=DIR (rows in DIR/{task.name}/train.jsonl and dev_subsample.jsonl), "
        "or --train_file and --eval_file (tables, docs/own_data.md)"
    )


def read_split(folder: Traversable, split: str, restore_dropped: bool) -> list[formats.Row]:
    """Return the rows of `<split>.jsonl`; `train_subset.jsonl`, DBPedia's published name, also serves for train.

    With `restore_dropped`, the rows of `<split>_dropped.jsonl`, if it exists, go back to the line numbers in their key `line`
    (0-based, in the file they were taken from).
    """
    names = _FILE_NAMES.get(split, (f"{split}.jsonl",))
    found = [folder / name for name in names if (folder / name).is_file()]
    if not found:
        raise errors.UserError(f"{folder / names[0]}: no such file; the folder holds {_content(folder)}")
    rows, dropped = list(formats.read(found[0])), folder / f"{split}_dropped.jsonl"
    if not (restore_dropped and dropped.is_file()):
        return rows
    removed = list(formats.read(dropped))
    for place, row in removed:
        if not isinstance(row.get("line"), int):
            raise errors.UserError(f"{place}: lacks 'line', the 0-based line number the row was taken from")
    for place, row in sorted(removed, key=lambda pair: pair[1]["line"]):
        line = row.pop("line")
        if not 0 <= line <= len(rows):
            raise errors.UserError(f"{place}: line {line} is outside the file it should go back to ({len(rows)} rows)")
        rows.insert(line, (place, row))
    return rows


def _content(folder: Traversable) -> str:
    return ", ".join(sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else ()) or "nothing"


def to_example(task: Task, place: str, row: Mapping[str, Any], index: int, label_column: str = "label") -> Example:
    """Return the labelled example in a row of columns.

    Raises:
      UserError: with the place, if a text is missing, empty or not a string, or the label is missing or unknown.
    """
    fields = fields_of(task, place, row)
    if label_column not in row:
        advice = "name the column of the labels (--label_column=), or choose another split"
        raise errors.UserError(f"{place}: has no label {label_column!r}, only {listed(row)}: {advice}")
    return Example(
        fields=fields,
        label=label_of(task, place, row[label_column]),
        row=index,
        source=place,
        other={key: value for key, value in row.items() if key not in task.fields and key != label_column},
    )


def fields_of(task: Task, place: str, row: Mapping[str, Any]) -> dict[str, str]:
    """Return the task's texts in a row; raise UserError with the place if one is missing, empty or not a string."""
    for field in task.fields:
        if field not in row:
            raise errors.UserError(f"{place}: lacks the field {field!r}; it has {listed(row)}")
        text = row[field]
        if not isinstance(text, str):
            raise errors.UserError(f"{place}: field {field!r} is a {type(text).__name__}, not a string")
        if not text.strip():
            raise errors.UserError(f"{place}: field {field!r} is empty")
        if surrogate := _SURROGATE.search(text):
            raise errors.UserError(
                f"{place}: field {field!r} holds half a character (U+{ord(surrogate[0]):04X}, a lone surrogate) at {surrogate.start()}"
            )
    return {field: str(row[field]) for field in task.fields}


def label_of(task: Task, place: str, label: Any) -> str:
    """Return the task's label string for a row's label; raise UserError with the place if the task has no such label."""
    name = label_string(place, label)
    if name not in task.classes:
        raise errors.UserError(f"{place}: unknown label {name!r}; choose from {listed(task.labels)}")
    return name
