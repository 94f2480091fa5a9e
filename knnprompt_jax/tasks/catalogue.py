"""Tasks by name: the paper's ten and SST5, with the templates and label words of its released code, and the demo.

To add a task, write a YAML file like those in `published/`, there or anywhere.
"""

import importlib.resources
import pathlib
from importlib.resources.abc import Traversable
from typing import Any

import yaml
from absl import logging

from knnprompt_jax import errors
from knnprompt_jax.tasks import defects
from knnprompt_jax.tasks.hub import HubSource
from knnprompt_jax.tasks.task import Task

DEMO = "demo"
OWN = "own"  # Made from the columns of a table.
PAPER_TASKS = ("sst2", "subj", "mpqa", "agnews", "cb", "cr", "dbpedia", "mr", "rte", "trec")
SUFFIXES = (".yaml", ".yml", ".json")
_MAX_BYTES = 2**24
_MAX_DEPTH = 100
_REQUIRED = ("fields", "template", "labels", "label_words")
_WORDS = (list, "a list of words")
_TEXT = (str, "a text")
_SHAPES: dict[str, tuple[Any, str]] = {  # The type of each key's value, whose members are texts, and its description.
    "fields": _WORDS,
    "template": _TEXT,
    "labels": _WORDS,
    "label_words": (list | dict, "a list of words, or have a word for each label"),
    "name": _TEXT,
    "retrieval_template": _TEXT,
    "description": _TEXT,
    "hub": (dict, "a mapping"),
}
_HUB: dict[str, type] = {
    **dict.fromkeys(("dataset", "config", "label_column", "revision"), str),
    **dict.fromkeys(("columns", "labels", "splits"), dict),
}


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
        UserError: the file cannot be read, a key is unknown, missing or repeated, or `Task` refuses the declaration.
    """
    values = _load(path)
    name = values.get("name", path.name.rpartition(".")[0])
    if pathlib.PurePath(name).name != name or name == ".." or not name.isprintable():
        raise _error(path, "name", "should be valid as the name of a file")
    labels = values["labels"]
    words = values["label_words"]
    if isinstance(words, dict):
        if unknown := set(words) ^ set(labels):
            raise _error(path, "label_words", f"and labels differ in {min(unknown)!r}")
        words = [words[label] for label in labels]
    for warning in defects.alike(labels):
        logging.warning("%s: %s", path, warning)
    with errors.prefixed(str(path)):
        return Task(
            name=name,
            fields=tuple(values["fields"]),
            template=values["template"].rstrip("\n"),  # A block of YAML ends in a newline.
            labels=tuple(labels),
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
    source = {
        "columns": {field: field for field in task.fields},
        "labels": {label: label for label in task.labels},
        "splits": {split: split for split in ("train", "dev", "test")},
        **_load(path).get("hub", {}),
    }
    if "dataset" not in source:
        raise _error(path, "hub", "should have the key dataset")
    for key, value in source.items():
        if key not in _HUB:
            raise _error(path, "hub", f"has the unknown key {key!r}; choose from {errors.join_names(_HUB)}")
        if not _has_type(value, _HUB[key]):
            expected = "a word" if _HUB[key] is str else "names to names"
            raise _error(path, "hub", f"should have {expected} at {key}")
    unknown = set(source["columns"]) ^ set(task.fields) or set(source["labels"].values()) - set(task.labels)
    if unknown:
        raise _error(path, "hub", f"and the task differ in {min(unknown)!r}")
    # A dataset may have numbers as labels.
    numbers = {int(value): label for value, label in source["labels"].items() if value.isdecimal()}
    source["labels"] = {**source["labels"], **numbers}
    return HubSource(**source)


def _path(name: str) -> Traversable:
    """Return the file that declares a task; raise UserError if there is none of that name."""
    if name.endswith(SUFFIXES):
        return pathlib.Path(name)
    if name not in names():
        raise errors.UserError(f"unknown task {name!r}; choose from {', '.join(names())}, or give a file: my_task.yaml")
    if name == DEMO:
        return demo_folder() / "task.json"
    return importlib.resources.files("knnprompt_jax") / "tasks" / "published" / f"{name}.yaml"


_Base: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # The one in C is ten times as fast.


class _Loader(_Base):
    """A loader that keeps every value as the string written (a label `no` or `01` too), and refuses repeated keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        if repeated := errors.repeated(key.value for key, _ in node.value):
            raise yaml.YAMLError(f"{repeated[0]!r} is given twice")
        return mapping


def _load(path: Traversable) -> dict[str, Any]:
    """Return the keys of a declaration with their values, all of the expected types."""
    try:
        content = _content(path)
        _check_depth(content)
        values = yaml.load(content, _Loader)
    except OSError as refused:
        raise errors.UserError(f"{path}: cannot read the task declaration: {refused.strerror}") from refused
    except (yaml.YAMLError, UnicodeError, RecursionError) as error:
        raise errors.UserError(f"{path}: not a task declaration: {errors.one_line(error)}") from None
    required = errors.join_names(_REQUIRED)
    if not isinstance(values, dict):
        raise errors.UserError(f"{path}: not a task declaration: it should have the keys {required}")
    for key, value in values.items():
        if key not in _SHAPES:
            raise _error(path, key, f"is not a key of a task declaration; choose from {errors.join_names(_SHAPES)}")
        kind, shape = _SHAPES[key]
        if not (isinstance(value, dict) if key == "hub" else _has_type(value, kind)):
            raise _error(path, key, f"should be {shape}")
    if missing := [key for key in _REQUIRED if key not in values]:
        raise errors.UserError(f"{path}: the task declaration lacks {missing[0]!r}; it needs {required}")
    return values


def _check_depth(content: bytes) -> None:
    """Raise RecursionError at deep nesting, at which the loader in C would end the process."""
    depth = 0
    for event in yaml.parse(content, _Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise RecursionError(f"nested more than {_MAX_DEPTH} deep")


def _content(path: Traversable) -> bytes:
    """Return the bytes of a regular file of bounded size; raise UserError at a device, a pipe or a larger file."""
    if isinstance(path, pathlib.Path) and path.exists() and not (path.is_file() or path.is_dir()):
        raise errors.UserError(f"{path}: not a regular file")
    with path.open("rb") as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise errors.UserError(f"{path}: more than {_MAX_BYTES:,} bytes: is it a task declaration?")
    return content


def _has_type(value: Any, kind: Any) -> bool:
    """Whether a value of YAML has this type, and all its members are words."""
    members = value.values() if isinstance(value, dict) else value  # Those of a text are its characters.
    return isinstance(value, kind) and all(isinstance(member, str) for member in members)


def _error(path: Traversable, key: str, message: str) -> errors.UserError:
    return errors.UserError(f"{path}: {key!r} {message}")
