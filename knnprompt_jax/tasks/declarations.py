"""Tasks declared in YAML files (JSON is YAML too); every error names file, line and key."""

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
    """A loader that keeps every value as the string written (a label `no` or `01` too), without objects or aliases."""

    def compose_node(self, parent: Any, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="aliases are not supported", problem_mark=self.peek_event().start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a key must be a word", problem_mark=key.start_mark)
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"{key.value!r} is given twice", problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def read(path: Traversable) -> Task:
    """Return the task that a file declares; its name defaults to the file's.

    `label_words` is a list in the order of `labels`, or maps each label to its word.

    Raises:
      UserError: the file cannot be read, a key is unknown, missing or repeated, or `Task` refuses the declaration.
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
    """Return the Hub dataset of a declared task: the key `hub`, a mapping of `HubSource`'s attributes.

    By default columns have the names of fields, and labels and splits have our names.

    Raises:
      UserError: as `read`, or the key is missing.
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
    if unknown := set(source["columns"]) ^ set(task.fields) or set(source["labels"].values()) - set(task.labels):
        raise given.error("hub", f"and the task differ in {min(unknown)!r}")
    # A dataset may have numbers as labels.
    numbers = {int(value): label for value, label in source["labels"].items() if value.isdecimal()}
    return HubSource(**{**source, "labels": {**source["labels"], **numbers}})


class _Declaration:
    """The keys of a file with their lines and values: strings, and lists and mappings of strings."""

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
        return value.rstrip("\n")  # A YAML block ends in a newline.

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.values[key]
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(key, "should be a list of words")
        return tuple(value)

    def words(self, key: str, names: Collection[str]) -> tuple[str, ...]:
        """Return one word per name, from a list in their order or from a mapping."""
        value = self.values[key]
        if not isinstance(value, dict):
            return self.texts(key)
        if unknown := set(value) ^ set(names):
            raise self.error(key, f"and labels differ in {min(unknown)!r}")
        if not all(isinstance(word, str) for word in value.values()):
            raise self.error(key, "should have a word for each label")
        return tuple(value[name] for name in names)
