"""Tasks by name: the paper's ten and SST5, with the templates and label words of its released code, and the demo.

To add a task, write a YAML file like those in `published/`, there or anywhere.
"""

import dataclasses
import importlib.resources
import pathlib
from collections.abc import Mapping
from importlib.resources.abc import Traversable
from typing import Any

import yaml

from knnprompt_jax.common import errors
from knnprompt_jax.tasks.task import Task

DEMO = "demo"
OWN = "own"  # Made from the columns of a table.
PAPER_TASKS = ("sst2", "subj", "mpqa", "agnews", "cb", "cr", "dbpedia", "mr", "rte", "trec")
SUFFIXES = (".yaml", ".yml", ".json")
_REQUIRED = {"fields": (list,), "template": (str,), "labels": (list,), "label_words": (list, dict)}
_OPTIONAL = {"name": (str,), "retrieval_template": (str,), "description": (str,), "hub": (dict,)}


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
        raise errors.UserError(
            f"{name}: {task.name!r} is the name of one of this package's tasks; give yours another `name:`"
        )
    return task


def demo_folder() -> Traversable:
    """Return the folder with the rows and the declaration of the demo task, which was made for this project."""
    return importlib.resources.files("knnprompt_jax") / "demo" / "task"


def read_task(path: Traversable) -> Task:
    """Return the task that a file declares; its name defaults to the file's.

    `label_words` is a list in the order of `labels`, or maps each label to its word.

    Raises:
        UserError: the file cannot be read, a key is unknown or missing, or `Task` refuses the declaration.
    """
    values = _load(path)
    words = values["label_words"]
    if isinstance(words, dict):
        if words.keys() != set(values["labels"]):
            raise errors.UserError(f"{path}: 'labels' and 'label_words' have different labels")
        words = [words[label] for label in values["labels"]]
    with errors.prefixed(str(path)):
        return Task(
            name=values.get("name", pathlib.PurePath(path.name).stem),
            fields=tuple(values["fields"]),
            template=values["template"].rstrip("\n"),  # A block of YAML ends in a newline.
            labels=tuple(values["labels"]),
            label_words=tuple(words),
            retrieval_template=values.get("retrieval_template", "").rstrip("\n"),
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
    types: dict[str, tuple[type, ...]] = {**_REQUIRED, **_OPTIONAL}
    if not isinstance(values, dict) or not _REQUIRED.keys() <= values.keys() <= types.keys():
        keys = errors.join_names(values) if isinstance(values, dict) else "none"
        raise errors.UserError(
            f"{path}: a task declaration needs the keys {errors.join_names(_REQUIRED)} and may have "
            f"{errors.join_names(_OPTIONAL)}; it has {keys}"
        )
    for key, value in values.items():
        members = value.values() if isinstance(value, dict) else value  # Those of a text are its characters.
        if not isinstance(value, types[key]) or (key != "hub" and not all(isinstance(each, str) for each in members)):
            kinds = " or ".join(kind.__name__ for kind in types[key])
            raise errors.UserError(f"{path}: {key!r} should be a {kinds} of texts")
    return values
