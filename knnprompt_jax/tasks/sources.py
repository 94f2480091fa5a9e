"""Examples from local files, from the Hugging Face Hub, or from the embedded demo; every row is checked."""

import pathlib
import re
from collections.abc import Mapping, Sequence
from importlib.resources.abc import Traversable
from typing import Any

from knnprompt_jax import errors
from knnprompt_jax.tasks import catalogue, files, formats, hub, tables
from knnprompt_jax.tasks.hub import HubSource
from knnprompt_jax.tasks.task import Example, Task, listed

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
    """Loads one split of a task from one place.

    Args:
      task: says which columns a row must have and which labels there are.
      split: "train", "dev_subsample", "test", … the file is `<data_dir>/<task.name>/<split>.jsonl`.
      data_dir: the folder of task folders in the published layout.
      path: a CSV, TSV (both with a header), JSONL or Parquet file that holds the split alone.
      encoding: of that file; Parquet has its own.
      hub_source: a dataset on the Hub, from `catalogue.hub_source` or one's own.
      restore_dropped: put the rows of `train_dropped.jsonl` back, which makes the published train file whole.
      label_column: what files call the column of the labels.

    Without a place, the demo task comes from the package.

    Raises:
      UserError: with file and line, on a missing, empty or malformed file, and on a row that lacks a field or a label,
        has an empty text, one that is not a string, or an unknown label.
    """
    given = [place for place in (data_dir, path, hub_source) if place is not None]
    if len(given) > 1:
        raise errors.UserError("choose one place for the rows: data_dir, path or hub_source")
    if hub_source is not None:
        where, rows = hub_source.dataset, hub.read(hub_source, split)
    elif path is not None:
        where, rows = path, list(formats.read(pathlib.Path(path), encoding))
    else:
        folder = _task_folder(task, data_dir)
        where, rows = f"{folder / split}.jsonl", files.read_split(folder, split, restore_dropped)
    if not rows:
        raise errors.UserError(f"{where}: no rows")
    if path is not None:
        _check_labels(path, [row for _, row in rows], label_column)
    else:
        told = f"split {split!r} of task {task.name!r}", "choose another split"
        _check_labels(where, [row for _, row in rows], label_column, *told)
    return [to_example(task, place, row, index, label_column) for index, (place, row) in enumerate(rows)]


def infer(path: str, encoding: str = "utf-8", label_column: str = "label", fields: Sequence[str] = ()) -> Task:
    """The task that a file's columns make, as `Task.infer`; raises UserError, with the file, where there is none in it."""
    rows = [row for _, row in formats.read(pathlib.Path(path), encoding)]
    _check_labels(path, rows, label_column)
    try:
        return Task.infer(rows, label=label_column, fields=fields or None)
    except errors.UserError as error:
        raise errors.UserError(f"{path}: {error}") from None


def labels_in(path: str, encoding: str = "utf-8", label_column: str = "label") -> set[str]:
    """The labels of a file's rows that have one; raises UserError, with file and line, on one that is no text or whole number."""
    rows = formats.read(pathlib.Path(path), encoding)
    return {tables.label_string(place, row[label_column]) for place, row in rows if label_column in row}


def _check_labels(
    where: str,
    rows: Sequence[Mapping[str, Any]],
    label_column: str,
    what: str = "the file",
    way_out: str = "name the column of the labels (label_column)",
) -> None:
    """Raises UserError, with the way out, where no row has a label."""
    if rows and not any(label_column in row for row in rows):
        only = listed(rows[0])
        raise errors.UserError(f"{where}: {what} is unlabelled: no row has a {label_column!r}, only {only}; {way_out}")


def _task_folder(task: Task, data_dir: str | None) -> Traversable:
    if data_dir is not None:
        folder = pathlib.Path(data_dir) / task.name
        if not folder.is_dir():
            raise errors.UserError(
                f"{folder}: no such folder; {data_dir} holds {files.content(folder.parent)}; {_where(task)}"
            )
        return folder
    if task.name == catalogue.DEMO:
        return catalogue.demo_folder()
    raise errors.UserError(
        f"task {task.name!r}: its rows are not here (only those of {catalogue.DEMO!r} come with the package): {_where(task)}"
    )


def _where(task: Task) -> str:
    """Where a task's rows can be had."""
    hub = f"hub takes them from the Hugging Face Hub ({dataset}), " if (dataset := catalogue.dataset(task.name)) else ""
    return (
        f"{hub}data_dir from <data_dir>/{task.name}/train.jsonl and dev_subsample.jsonl, train_file and eval_file from "
        "tables (docs/own_data.md)"
    )


def to_example(task: Task, place: str, row: Mapping[str, Any], index: int, label_column: str = "label") -> Example:
    """The example in a row of columns, with its label.

    Raises:
      UserError: with the place, on a row that lacks a field or the label, has an empty text or one that is none, or an
        unknown label.
    """
    fields = fields_of(task, place, row)
    if label_column not in row:
        raise errors.UserError(f"{place}: lacks the field {label_column!r}; it has {listed(row)}")
    return Example(
        fields=fields,
        label=label_of(task, place, row[label_column]),
        row=index,
        source=place,
        other={key: value for key, value in row.items() if key not in task.fields and key != label_column},
    )


def fields_of(task: Task, place: str, row: Mapping[str, Any]) -> dict[str, str]:
    """The task's texts in a row of columns; raises UserError, with the place, where one is missing, empty or no text."""
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
    """The task's label string for a label as it stands in a row; raises UserError, with the place, where there is none."""
    name = tables.label_string(place, label)
    if name not in task.classes:
        raise errors.UserError(f"{place}: unknown label {name!r}; choose from {listed(task.labels)}")
    return name
