"""Rows of published tasks: from local folders, from the package (the demo), or from the Hugging Face Hub."""

import pathlib
from collections.abc import Iterator
from typing import Any

from knnprompt_jax.common import errors
from knnprompt_jax.tasks import catalogue
from knnprompt_jax.tasks.catalogue import HubSource
from knnprompt_jax.tasks.table_file import STOP, Row, Table
from knnprompt_jax.tasks.task import Example, Task

_FILE_NAMES = {"train": ("train.jsonl", "train_subset.jsonl")}  # The second as published for DBPedia.
_UNLABELLED = (None, -1)  # Values of label columns on the Hub.


def load_rows(
    task: Task,
    split: str,
    *,
    data_dir: str | None = None,
    hub_source: HubSource | None = None,
    label_column: str = "label",
    on_bad: str = STOP,
) -> list[Example]:
    """Load one split of a task from one place; without a place, the demo task comes from the package.

    Args:
        task: declares the fields and labels of the rows.
        split: "train", "dev_subsample", "test", …; the file is `<data_dir>/<task.name>/<split>.jsonl`.
        data_dir: the folder of task folders in the published layout.
        hub_source: a dataset on the Hub, for example from `catalogue.hub_source`.
        label_column: the column of the labels.
        on_bad: as in `Table`.

    Raises:
        UserError: a file is missing, empty or malformed; or a row is bad. The message names the file and the line.
    """
    if hub_source is not None:
        return Table(hub_source.dataset, on_bad=on_bad).labelled(task, _read_hub(hub_source, split))
    has_folder = bool(data_dir) or task.name == catalogue.DEMO
    folder = pathlib.Path(data_dir) / task.name if data_dir else catalogue.demo_folder()
    names = _FILE_NAMES.get(split, (f"{split}.jsonl",))
    found = [folder / name for name in names if has_folder and (folder / name).is_file()]
    if not found:
        place = f"{folder}: no file {names[0]}" if has_folder else f"task {task.name!r}: its rows are not included"
        raise errors.UserError(
            f"{place}; give --data_dir=DIR (rows in DIR/{task.name}/train.jsonl and dev_subsample.jsonl), --hub (the "
            "Hugging Face Hub), or --train_file (a table; not in `paper`; `compare` needs --eval_file too)"
        )
    return Table(str(found[0]), label_column, on_bad=on_bad).labelled(task)


def _read_hub(source: HubSource, split: str) -> Iterator[Row]:
    """Yield the rows of a split on the Hub; a row has the task's fields and, if labelled, `label`.

    Raises:
        UserError: the split is unknown, `datasets` is not installed, or the dataset cannot be loaded.
    """
    if split not in source.splits:
        raise errors.UserError(f"{source.dataset} has no split {split!r}; choose from {', '.join(source.splits)}")
    rows = _load(source, split)
    for column in (*source.columns.values(), source.label_column):
        if column not in rows.column_names:
            raise errors.UserError(
                f"{source.dataset}, split {split!r}, has no column {column!r}; it has {', '.join(rows.column_names)}"
            )
    for number, row in enumerate(rows):
        cells = {field: row[column] for field, column in source.columns.items()}
        value = row[source.label_column]
        if value not in _UNLABELLED:
            cells["label"] = source.labels.get(value, value)
        yield f"{source.dataset}/{split}:{number}", cells


def _load(source: HubSource, split: str) -> Any:
    """Return the rows of a split with the Hub's columns."""
    try:
        import datasets

        return datasets.load_dataset(
            source.dataset, source.config, split=source.splits[split], revision=source.revision
        )
    except Exception as error:  # The library raises the errors of its network, cache and file layers.
        advice = "pip install 'knnprompt_jax[hub]'" if isinstance(error, ModuleNotFoundError) else "see --data_dir="
        reason = errors.one_line(error)
        raise errors.UserError(f"cannot load data set {source.dataset!r}: {reason}; {advice}") from error
