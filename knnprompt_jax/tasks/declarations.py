"""Tasks declared in YAML files (JSON is YAML too); every mistake is told with file, line and key."""

import dataclasses
import pathlib
from collections.abc import Collection
from importlib.resources.abc import Traversable
from typing import Any

import yaml

from knnprompt_jax import errors
from knnprompt_jax.tasks.hub import HubSource
from knnprompt_jax.tasks.task import Task, listed

SUFFIXES = (".yaml", ".yml", ".json")
_REQUIRED = ("fields", "template", "labels", "label_words")
_OPTIONAL = ("name", "retrieval_template", "description", "hub")
_HUB = tuple(field.name for field in dataclasses.fields(HubSource))
_SPLITS = ("train", "dev", "test")


class _Loader(yaml.BaseLoader):
    """Reads every value as the string that it is written as (a label `no` or `01` too), makes no objects, follows no aliases."""

    def compose_node(self, parent: Any, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="aliases are not read", problem_mark=self.peek_event().start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a key is no word", problem_mark=key.start_mark)
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"{key.value!r} is given twice", problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def read(path: Traversable) -> Task:
    """The task that a file declares; where that gives no name, it has the file's.

    `label_words` is a list in the order of `labels`, or maps each label to its word.

    Raises:
      UserError: on a file that cannot be read, an unknown, missing or repeated key, and whatever `Task` refuses.
    """
    given = _Declaration(path)
    name, labels = given.text("name", path.name.rpartition(".")[0]), given.texts("labels")
    if pathlib.PurePath(name).name != name:
        raise given.error("name", "should be fit for a file's name")
    try:
        return Task(
            name=name,
            fields=given.texts("fields"),
            template=given.text("template"),
            labels=labels,
            label_words=given.words("label_words", labels),
            retrieval_template=given.text("retrieval_template", ""),
        )
    except errors.UserError as error:
        raise errors.UserError(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from None


def read_hub(path: Traversable) -> HubSource:
    """Where the Hub has the rows of a declared task: the key `hub`, a mapping of `HubSource`'s attributes.

    By default columns are called as the fields, labels as the task's, splits as ours.

    Raises:
      UserError: as `read`, and where the key is missing.
    """
    task, given = read(path), _Declaration(path)
    source = given.values.get("hub")
    if not isinstance(source, dict) or not isinstance(source.get("dataset"), str) or set(source) - set(_HUB):
        raise given.error("hub", f"should have the key dataset, and may have {listed(_HUB[1:])}")
    for key, defaults in (("columns", task.fields), ("labels", task.labels), ("splits", _SPLITS)):
        names = source.setdefault(key, {name: name for name in defaults})
        if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
            raise given.error("hub", f"should have names to names at {key}")
    for key in set(source) - {"columns", "labels", "splits"}:
        if not isinstance(source[key], str):
            raise given.error("hub", f"should have a word at {key}")
    if other := set(source["columns"]) ^ set(task.fields) or set(source["labels"].values()) - set(task.labels):
        raise given.error("hub", f"and the task differ in {min(other)!r}")
    # A data set may have its labels as numbers.
    numbers = {int(value): label for value, label in source["labels"].items() if value.isdecimal()}
    return HubSource(**{**source, "labels": {**source["labels"], **numbers}})


class _Declaration:
    """The keys of a file with their values, all strings, lists and mappings of these, and with their lines."""

    def __init__(self, path: Traversable):
        self.path = path
        try:
            loader = _Loader(path.read_bytes())
            node = loader.get_single_node()
            if not isinstance(node, yaml.MappingNode):
                raise errors.UserError(f"{path}: not a task declaration: it should have the keys {listed(_REQUIRED)}")
            self.values: dict[str, Any] = loader.construct_document(node)
            self.lines = {key.value: key.start_mark.line + 1 for key, _ in node.value}
        except OSError as error:
            raise errors.UserError(f"{path}: cannot read the task declaration: {error.strerror}") from error
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = f"{path}:{mark.line + 1}" if mark else str(path)
            raise errors.UserError(f"{place}: not a task declaration: {error.problem}") from None
        except (yaml.YAMLError, UnicodeError, RecursionError) as error:
            raise errors.UserError(f"{path}: not a task declaration: {' '.join(str(error).split())}") from None
        choices = (*_REQUIRED, *_OPTIONAL)
        if unknown := [key for key in self.values if key not in choices]:
            raise self.error(unknown[0], f"is no key of a task declaration; choose from {listed(choices)}")
        if missing := [key for key in _REQUIRED if key not in self.values]:
            raise errors.UserError(f"{path}: the task declaration lacks {missing[0]!r}; it needs {listed(_REQUIRED)}")

    def error(self, key: str, message: str) -> errors.UserError:
        place = f"{self.path}:{self.lines[key]}" if key in self.lines else self.path
        return errors.UserError(f"{place}: {key!r} {message}")

    def text(self, key: str, default: str = "") -> str:
        value = self.values.get(key, default)
        if not isinstance(value, str):
            raise self.error(key, "should be a text")
        return value.rstrip("\n")  # A block of YAML ends in a newline.

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.values[key]
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(key, "should be a list of words")
        return tuple(value)

    def words(self, key: str, names: Collection[str]) -> tuple[str, ...]:
        """One word per name: a list in their order, or a mapping from each."""
        value = self.values[key]
        if not isinstance(value, dict):
            return self.texts(key)
        if other := set(value) ^ set(names):
            raise self.error(key, f"and labels differ in {min(other)!r}")
        if not all(isinstance(word, str) for word in value.values()):
            raise self.error(key, "should have a word for each label")
        return tuple(value[name] for name in names)
