"""Examples from local files, from the Hugging Face Hub, or from the embedded demo; every row is validated."""

import pathlib
import shlex
from collections.abc import Iterable, Sequence
from importlib.resources.abc import Traversable
from typing import Any

from absl import logging

from knnprompt_jax import errors
from knnprompt_jax.tasks import catalogue, defects, formats, hub
from knnprompt_jax.tasks.cells import label_string
from knnprompt_jax.tasks.hub import HubSource
from knnprompt_jax.tasks.task import ALLOW, SKIP, Example, Task

STOP = "stop"
ON_BAD = (STOP, SKIP)
_SHOWN = 5  # Bad rows that a warning names.
_FILE_NAMES = {"train": ("train.jsonl", "train_subset.jsonl")}


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
    on_bad: str = STOP,
    new_labels: bool = False,
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
        on_bad: "stop" at a bad row, or "skip" it: a warning counts the rows that are left out.
        new_labels: accept labels that the task does not have.

    Raises:
        UserError: with file and line, if a file is missing, empty or malformed, or a row has a missing, empty or non-string text
            or a missing or unknown label.
    """
    if sum(place is not None for place in (data_dir, path, hub_source)) > 1:
        raise errors.UserError("choose one place for the rows: --data_dir, --hub, or --train_file with its --eval_file")
    rows: Iterable[formats.Parsed]
    if hub_source is not None:
        where, rows = hub_source.dataset, hub.read(hub_source, split)
    elif path is not None:
        where, rows = path, formats.parse(pathlib.Path(path), encoding)
    else:
        folder = _task_folder(task, data_dir)
        where, rows = f"{folder / split}.jsonl", read_split(folder, split, restore_dropped)
    return _examples(task, where, rows, label_column, on_bad, new_labels)


def load_table(
    path: str,
    fields: Sequence[str] = (),
    empty: str = ALLOW,
    *,
    encoding: str = "utf-8",
    label_column: str = "label",
    on_bad: str = STOP,
) -> tuple[Task, list[Example]]:
    """Return the task inferred from a table, like `Task.infer`, and its rows; other arguments are those of `load_rows`."""
    if label_column in fields:
        raise errors.UserError(f"--text_columns: {label_column!r} is the column of the labels; leave it out")
    rows = list(formats.parse(pathlib.Path(path), encoding))
    texts = [{**row, label_column: 0} for _, row in rows if isinstance(row, dict)]
    if not texts:
        raise next((row for _, row in rows if isinstance(row, errors.UserError)), errors.UserError(f"{path}: no rows"))

    def infer(rows: Sequence[Any], labels: Sequence[str] | None, fields: Sequence[str] | None) -> Task:
        try:
            return Task.infer(rows, labels, label=label_column, fields=fields, empty=empty)
        except errors.UserError as error:
            raise errors.UserError(f"{path}: {error}") from None

    draft = infer(texts, None, fields or None)
    examples = _examples(draft, path, rows, label_column, on_bad, new_labels=True)
    known, labels = zip(*((example.fields, example.label) for example in examples), strict=True)
    return infer(known, labels, draft.fields), examples


def _examples(
    task: Task, where: str, rows: Iterable[formats.Parsed], label_column: str, on_bad: str, new_labels: bool
) -> list[Example]:
    """Return the labelled examples in rows of columns, without the bad rows that are left out."""
    examples: list[Example] = []
    bad: list[errors.UserError] = []
    for index, (place, row) in enumerate(rows):
        try:
            if isinstance(row, errors.UserError):
                raise row
            fields = task.fields_of(place, row)
            if label_column not in row:
                advice = "name it with --label_column=, or choose a file with labels"
                if similar := [name for name in row if defects.plain(name) == defects.plain(label_column)]:
                    advice = f"did you mean --label_column={shlex.quote(similar[0])}?"
                raise errors.UserError(
                    f"{place}: no label column {label_column!r}, only {errors.join_names(row)}: {advice}"
                )
            value = row[label_column]
            label = label_string(place, value) if new_labels else task.label_of(place, value)
            other = {name: value for name, value in row.items() if name not in task.fields and name != label_column}
            examples.append(Example(fields, label, index, place, other))
        except errors.UserError as error:
            if not is_skipped(error, task, on_bad):
                raise advised(error) from None
            bad.append(error)
    if not examples:
        raise errors.UserError(f"all {len(bad)} rows are bad; the first: {bad[0]}" if bad else f"{where}: no rows")
    if bad:
        count = len(bad) + len(examples)
        messages = "; ".join([*map(str, bad[:_SHOWN]), *["…"] * (len(bad) > _SHOWN)])
        logging.warning("%s: %d of %d rows are left out: %s", where, len(bad), count, messages)
    return examples


def is_skipped(error: errors.UserError, task: Task, on_bad: str) -> bool:
    """Return whether the row with this error is left out."""
    return on_bad == SKIP or (task.empty == SKIP and isinstance(error, errors.EmptyCell))


def advised(error: errors.UserError) -> errors.UserError:
    """Return the error of a row; that of an empty cell says how to leave such rows out."""
    return (
        errors.UserError(f"{error}; --on_bad=skip leaves such rows out")
        if isinstance(error, errors.EmptyCell)
        else error
    )


def _task_folder(task: Task, data_dir: str | None) -> Traversable:
    if data_dir is None and task.name == catalogue.DEMO:
        return catalogue.demo_folder()
    folder = pathlib.Path(data_dir or "") / task.name
    if data_dir is not None and folder.is_dir():
        return folder
    missing = f"task {task.name!r}: its rows are not included" if data_dir is None else f"{folder}: no such folder"
    raise errors.UserError(
        f"{missing}; give --data_dir=DIR (rows in DIR/{task.name}/train.jsonl and dev_subsample.jsonl), --hub (the "
        "Hugging Face Hub), or --train_file (a table; not in `paper`; `run` and `compare` need --eval_file too)"
    )


def read_split(folder: Traversable, split: str, restore_dropped: bool) -> list[formats.Row]:
    """Return the rows of `<split>.jsonl`; `train_subset.jsonl`, DBPedia's published name, also serves for train.

    With `restore_dropped`, the rows of `<split>_dropped.jsonl`, if it exists, go back to the line numbers in their key `line`
    (0-based, in the file they were taken from).
    """
    names = _FILE_NAMES.get(split, (f"{split}.jsonl",))
    found = [folder / name for name in names if (folder / name).is_file()]
    if not found:
        entries = errors.join_names(sorted(entry.name for entry in folder.iterdir()))
        raise errors.UserError(f"{folder / names[0]}: no such file; the folder holds {entries}")
    rows, dropped = list(formats.read(found[0])), folder / f"{split}_dropped.jsonl"
    if not (restore_dropped and dropped.is_file()):
        return rows
    removed = [(row.pop("line", None), place, row) for place, row in formats.read(dropped)]
    count = len(rows) + len(removed)
    for line, place, _ in removed:
        if type(line) is not int or line not in range(count):
            raise errors.UserError(f"{place}: line={line!r}: the row's line number is needed, from 0 to {count - 1}")
    for line, place, row in sorted(removed, key=lambda each: each[0]):
        rows.insert(line, (place, row))
    return rows
