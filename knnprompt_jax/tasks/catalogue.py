"""Tasks by name, and their rows: the paper's ten and SST5, as in its released code, and the demo.

Rows come from local folders, from the package (the demo), or from the Hugging Face Hub.

To add a task, write a YAML file like those in `published/`, there or anywhere.
"""

import dataclasses
import importlib.resources
import pathlib
from collections.abc import Iterator, Mapping
from importlib.resources.abc import Traversable
from typing import Any

import yaml

from knnprompt_jax.common import errors
from knnprompt_jax.tasks.table_file import STOP, Row, Table
from knnprompt_jax.tasks.task import Example, Task

DEMO = "demo"
OWN = "own"  # Made from the columns of a table.
PAPER_TASKS = ("sst2", "subj", "mpqa", "agnews", "cb", "cr", "dbpedia", "mr", "rte", "trec")
SUFFIXES = (".yaml", ".yml", ".json")
_FILE_NAMES = {"train": ("train.jsonl", "train_subset.jsonl")}  # The second as published for DBPedia.
_UNLABELLED = (None, -1)  # Values of label columns on the Hub.
_REQUIRED = {"fields": list, "template": str, "labels": list, "label_words": list | dict}
_OPTIONAL = {"name": str, "retrieval_template": str, "description": str, "descriptions": list | dict, "hub": dict}


@dataclasses.dataclass(frozen=True)
class HubSource:
    """A task's dataset on the Hub, with the names of its columns, splits and labels.

    Attributes:
        dataset: the id on the Hub, or a folder that `datasets` can load.
        columns: the Hub's column of each field.
        labels: the label string of each value of `label_column`; None and -1 mean no label.
        splits: the Hub's split of each of our splits.
        config: the configuration of the dataset, if it has several.
        label_column: the Hub's column of the labels.
        revision: the branch, tag or commit on the Hub.
    """

    dataset: str
    columns: Mapping[str, str]
    labels: Mapping[Any, str]
    splits: Mapping[str, str]
    config: str | None = None
    label_column: str = "label"
    revision: str | None = None


def names() -> list[str]:
    """Return the names of all tasks that come with the package."""
    return [*PAPER_TASKS, "sst5", DEMO]


def get(name: str) -> Task:
    """Return the task of that name, or the one that a file declares (see `read_task`).

    Raises:
        UserError: the name is unknown, the file declares no task, or it declares a different task under the name of one
            of these tasks, or under `OWN`.
    """
    task = read_task(_path(name))
    if name.endswith(SUFFIXES) and (task.name == OWN or task.name in names() and task != get(task.name)):
        # Methods and reports know the paper's tasks by name, and the command to fit again knows `OWN`.
        raise errors.UserError(f"{name}: {task.name!r} is a task of this package; give yours another `name:`")
    return task


def demo_folder() -> Traversable:
    """Return the folder with the rows and the declaration of the demo task, which was made for this project."""
    return importlib.resources.files("knnprompt_jax") / "demo" / "task"


def read_task(path: Traversable) -> Task:
    """Return the task that a file declares; its name defaults to the file's.

    `label_words` and `descriptions` are lists in the order of `labels`, or map each label to its text.

    Raises:
        UserError: the file cannot be read, a key is unknown or missing, or `Task` refuses the declaration.
    """
    values = _load(path)
    texts: dict[str, Any] = {key: values.get(key, []) for key in ("label_words", "descriptions")}
    for key, by_label in texts.items():
        if isinstance(by_label, dict):
            if by_label.keys() != set(values["labels"]):
                raise errors.UserError(f"{path}: 'labels' and {key!r} have different labels")
            texts[key] = [by_label[label] for label in values["labels"]]
    with errors.prefixed(str(path)):
        return Task(
            name=values.get("name", pathlib.PurePath(path.name).stem),
            fields=tuple(values["fields"]),
            template=values["template"].rstrip("\n"),  # A block of YAML ends in a newline.
            labels=tuple(values["labels"]),
            label_words=tuple(texts["label_words"]),
            retrieval_template=values.get("retrieval_template", "").rstrip("\n"),
            descriptions=tuple(texts["descriptions"]),
        )


def hub_source(name: str) -> HubSource:
    """Return a task's dataset on the Hugging Face Hub, as the declaration's key `hub` describes it.

    `hub` maps the names of `HubSource`'s attributes to their values. By default columns have the names of the fields,
    and labels and splits have our names.

    Raises:
        UserError: see `get`; or the declaration has no dataset or an invalid one.
    """
    task = get(name)
    path = _path(name)
    given: dict[str, Any] = {
        "columns": {field: field for field in task.fields},
        "labels": {label: label for label in task.labels},
        "splits": {split: split for split in ("train", "dev", "test")},
        **_load(path).get("hub", {}),
    }
    try:
        # A dataset may have numbers as labels.
        numbers = {int(value): label for value, label in given["labels"].items() if value.isdecimal()}
        source = HubSource(**given | {"labels": given["labels"] | numbers})
        if source.columns.keys() != set(task.fields) or not set(source.labels.values()) <= set(task.labels):
            raise ValueError("it should have a column for each field, and labels of the task")
    except (TypeError, AttributeError, ValueError) as error:
        raise errors.UserError(f"{path}: 'hub' is not valid: {errors.one_line(error)}") from None
    return source


def _path(name: str) -> Traversable:
    """Return the file that declares a task; raise UserError if there is none of that name."""
    if name.endswith(SUFFIXES):
        return pathlib.Path(name)
    if name not in names():
        raise errors.UserError(f"unknown task {name!r}; choose from {', '.join(names())}, or give a file: my_task.yaml")
    if name == DEMO:
        return demo_folder() / "task.json"
    return importlib.resources.files("knnprompt_jax") / "tasks" / "published" / f"{name}.yaml"


def _load(path: Traversable) -> dict[str, Any]:
    """Return the keys of a declaration with their values as strings (a label `no` or `01` too), lists or mappings."""
    try:
        values = yaml.load(path.read_bytes(), yaml.BaseLoader)
    except (OSError, yaml.YAMLError, UnicodeError, RecursionError) as error:
        raise errors.UserError(f"{path}: cannot read the task declaration: {errors.one_line(error)}") from None
    types = _REQUIRED | _OPTIONAL
    values = values if isinstance(values, dict) else {}
    if not _REQUIRED.keys() <= values.keys() <= types.keys():
        keys = f"the keys {errors.join_names(_REQUIRED)} and may have {errors.join_names(_OPTIONAL)}"
        raise errors.UserError(f"{path}: a task declaration needs {keys}; it has {errors.join_names(values)}")
    for key, value in values.items():
        members = value.values() if isinstance(value, dict) else value  # The members of a text are its characters.
        if not isinstance(value, types[key]) or (key != "hub" and not all(isinstance(each, str) for each in members)):
            kind = "text" if types[key] is str else f"{getattr(types[key], '__name__', types[key])} of texts"
            raise errors.UserError(f"{path}: {key!r} should be a {kind}")
    return values


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
        hub_source: a dataset on the Hub, for example from `hub_source`.
        label_column: the column of the labels.
        on_bad: as in `Table`.

    Raises:
        UserError: a file is missing, empty or malformed; or a row is bad. The message names the file and the line.
    """
    if hub_source is not None:
        rows = _read_hub(hub_source, split)
        return Table(hub_source.dataset, on_bad=on_bad).labelled(task, rows)
    has_folder = bool(data_dir) or task.name == DEMO
    folder = pathlib.Path(data_dir) / task.name if data_dir else demo_folder()
    names = _FILE_NAMES.get(split, (f"{split}.jsonl",))
    found = [folder / name for name in names if has_folder and (folder / name).is_file()]
    if not found:
        place = f"{folder}: no file {names[0]}" if has_folder else f"task {task.name!r}: its rows are not included"
        advice = f"give --train_file and --eval_file, --hub or --data_dir=DIR with DIR/{task.name}/{names[0]}"
        raise errors.UserError(f"{place}; {advice} (docs/paper.md#the-rows)")
    return Table(str(found[0]), label_column, on_bad=on_bad).labelled(task)


def _read_hub(source: HubSource, split: str) -> Iterator[Row]:
    """Yield the rows of a split on the Hub; a row has the task's fields and, if labelled, `label`.

    Raises:
        UserError: the split is unknown, `datasets` is not installed, or the dataset cannot be loaded.
    """
    if split not in source.splits:
        choices = ", ".join(source.splits)
        raise errors.UserError(f"{source.dataset}: no split {split!r} in the task's `splits`; choose from {choices}")
    try:
        import datasets

        options = {"split": source.splits[split], "revision": source.revision}
        rows = datasets.load_dataset(source.dataset, source.config, **options)
        rows = rows.select_columns([*source.columns.values(), source.label_column])
    except Exception as error:  # The library raises the errors of its network, cache and file layers.
        advice = "pip install 'knnprompt_jax[hub]'" if isinstance(error, ModuleNotFoundError) else "see --data_dir="
        raise errors.UserError(f"cannot load {source.dataset!r}: {errors.one_line(error)}; {advice}") from error
    for number, row in enumerate(rows):
        cells = {field: row[column] for field, column in source.columns.items()}
        value = row[source.label_column]
        if value not in _UNLABELLED:
            cells["label"] = source.labels.get(value, value)
        yield f"{source.dataset}/{split}:{number}", cells
