"""Tasks by name: the paper's ten and SST5, with the templates and label words of its released code, and the demo.

To add a task, write a YAML file like those in `published/`, there or anywhere.
"""

import importlib.resources
import pathlib
from collections.abc import Callable
from importlib.resources.abc import Traversable
from typing import Any

import yaml

from knnprompt_jax import errors
from knnprompt_jax.tasks.hub import HubSource
from knnprompt_jax.tasks.task import Task

DEMO = "demo"
PAPER_TASKS = ("sst2", "subj", "mpqa", "agnews", "cb", "cr", "dbpedia", "mr", "rte", "trec")
SUFFIXES = (".yaml", ".yml", ".json")
_REQUIRED = ("fields", "template", "labels", "label_words")
_WORDS = list, "a list of words"
_SHAPES: dict[str, tuple[Any, str]] = {  # The type of each key's value, whose members are texts, and its description.
    "fields": _WORDS,
    "template": (str, "a text"),
    "labels": _WORDS,
    "label_words": (list | dict, "a list of words, or have a word for each label"),
    "name": (str, "a text"),
    "retrieval_template": (str, "a text"),
    "description": (str, "a text"),
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
      UserError: the name is unknown, the file declares no task, or it gives another task the name of one of these tasks.
    """
    task = read_task(_path(name))
    if name.endswith(SUFFIXES) and task.name in names() and task != get(task.name):
        # Methods and reports know the paper's tasks by name.
        raise errors.UserError(
            f"{name}: {task.name!r} is the name of one of this package's tasks; give yours another `name:`"
        )
    return task


def _path(name: str) -> Traversable:
    """Return the file that declares a task; raise UserError if there is none of that name."""
    if name.endswith(SUFFIXES):
        return pathlib.Path(name)
    if name not in names():
        raise errors.UserError(f"unknown task {name!r}; choose from {', '.join(names())}, or give a file: my_task.yaml")
    published = importlib.resources.files("knnprompt_jax") / "tasks" / "published"
    return demo_folder() / "task.json" if name == DEMO else published / f"{name}.yaml"


def demo_folder() -> Traversable:
    """Return the folder with the rows and the declaration of the demo task, which was made for this project."""
    return importlib.resources.files("knnprompt_jax") / "demo" / "task"


class _Loader(yaml.BaseLoader):
    """A loader that keeps every value as the string written (a label `no` or `01` too), without objects."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        for index, (key, _) in enumerate(node.value):
            if key.value in keys[:index]:
                raise yaml.MarkedYAMLError(problem=f"{key.value!r} is given twice", problem_mark=key.start_mark)
        return super().construct_mapping(node, deep)


def read_task(path: Traversable) -> Task:
    """Return the task that a file declares; its name defaults to the file's.

    `label_words` is a list in the order of `labels`, or maps each label to its word.

    Raises:
      UserError: the file cannot be read, a key is unknown, missing or repeated, or `Task` refuses the declaration.
    """
    values, error = _load(path)
    name, labels, words = values.get("name", path.name.rpartition(".")[0]), values["labels"], values["label_words"]
    if pathlib.PurePath(name).name != name:
        raise error("name", "should be fit for a file's name")
    if isinstance(words, dict):
        if unknown := set(words) ^ set(labels):
            raise error("label_words", f"and labels differ in {min(unknown)!r}")
        words = [words[label] for label in labels]
    template, retrieval = (values.get(key, "").rstrip("\n") for key in ("template", "retrieval_template"))
    try:  # A block of YAML ends in a newline.
        return Task(name, tuple(values["fields"]), template, tuple(labels), tuple(words), retrieval)
    except errors.UserError as refusal:
        raise errors.UserError(f"{path}: {refusal}") from None


def hub_source(name: str) -> HubSource:
    """Return a task's dataset on the Hugging Face Hub: the declaration's key `hub`, a mapping of `HubSource`'s attributes.

    By default columns have the names of fields, and labels and splits have our names.

    Raises:
      UserError: as `get`, or the declaration has no dataset or an invalid one.
    """
    task, (values, error) = get(name), _load(_path(name))
    defaults = {"columns": task.fields, "labels": task.labels, "splits": ("train", "dev", "test")}
    source = {key: {word: word for word in words} for key, words in defaults.items()} | values.get("hub", {})
    if "dataset" not in source:
        raise error("hub", "should have the key dataset")
    for key, value in source.items():
        if key not in _HUB:
            raise error("hub", f"has the unknown key {key!r}; choose from {errors.join_names(_HUB)}")
        if not _is(_HUB[key], value):
            raise error("hub", f"should have {'a word' if _HUB[key] is str else 'names to names'} at {key}")
    if unknown := set(source["columns"]) ^ set(task.fields) or set(source["labels"].values()) - set(task.labels):
        raise error("hub", f"and the task differ in {min(unknown)!r}")
    # A dataset may have numbers as labels.
    numbers = {int(value): label for value, label in source["labels"].items() if value.isdecimal()}
    return HubSource(**{**source, "labels": {**source["labels"], **numbers}})


def _load(path: Traversable) -> tuple[dict[str, Any], Callable[[str, str], errors.UserError]]:
    """Return the keys of a file with their values, and a function that makes the error of a key."""
    lines: dict[str, int] = {}

    def error(key: str, message: str) -> errors.UserError:
        place = f"{path}:{lines[key]}" if key in lines else path
        return errors.UserError(f"{place}: {key!r} {message}")

    try:
        loader = _Loader(path.read_bytes())
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            raise errors.UserError(
                f"{path}: not a task declaration: it should have the keys {errors.join_names(_REQUIRED)}"
            )
        values = loader.construct_document(node)
    except OSError as refused:
        raise errors.UserError(f"{path}: cannot read the task declaration: {refused.strerror}") from refused
    except yaml.MarkedYAMLError as bad:
        mark = bad.problem_mark or bad.context_mark
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        raise errors.UserError(f"{place}: not a task declaration: {bad.problem}") from None
    except (yaml.YAMLError, UnicodeError, RecursionError) as bad:
        raise errors.UserError(f"{path}: not a task declaration: {' '.join(str(bad).split())}") from None
    lines |= {key.value: key.start_mark.line + 1 for key, _ in node.value}
    for key, value in values.items():
        if key not in _SHAPES:
            raise error(key, f"is not a key of a task declaration; choose from {errors.join_names(_SHAPES)}")
        kind, shape = _SHAPES[key]
        if not (isinstance(value, dict) if key == "hub" else _is(kind, value)):
            raise error(key, f"should be {shape}")
    if missing := [key for key in _REQUIRED if key not in values]:
        raise errors.UserError(
            f"{path}: the task declaration lacks {missing[0]!r}; it needs {errors.join_names(_REQUIRED)}"
        )
    return values, error


def _is(kind: Any, value: Any) -> bool:
    """Return whether a value of YAML has this type, and all its members are words."""
    members = value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
    return isinstance(value, kind) and all(isinstance(member, str) for member in members)
