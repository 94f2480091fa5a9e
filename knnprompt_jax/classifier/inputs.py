"""What users give as X and y: texts or rows and labels, as a list, an array or a table of pandas."""

import collections
import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np

from knnprompt_jax import errors
from knnprompt_jax.tasks import sources, tables
from knnprompt_jax.tasks.task import Example, Task


def queries(task: Task, X: Any) -> list[Example]:
    """Examples without labels; raises UserError, with the row, on one that lacks a field or has an empty text."""
    return [
        Example(sources.fields_of(task, f"row {index}", row), "", index, f"row {index}")
        for index, row in enumerate(tables.rows_of(X, task.fields))
    ]


def label_strings(labels: Iterable[Any]) -> list[str]:
    """Labels as tasks write them; raises UserError, with the place, on one that is no text, whole number or truth value."""
    return [tables.label_string(f"label {index}", label) for index, label in enumerate(labels)]


def labels_by_id(shown: Iterable[Example], ids: Iterable[Any], labels: Iterable[Any]) -> dict[int, str]:
    """The labels that anchors are to have; raises UserError on a repeated id, a demonstration's, or not as many labels as ids."""
    numbers, names = [int(number) for number in ids], label_strings(labels)
    if len(numbers) != len(names):
        raise errors.UserError(f"{len(numbers)} ids, {len(names)} labels: each anchor needs one")
    if repeated := [number for number, count in collections.Counter(numbers).items() if count > 1]:
        raise errors.UserError(f"id {repeated[0]} is given {numbers.count(repeated[0])} times")
    if demonstrations := {example.row for example in shown} & set(numbers):
        raise errors.UserError(
            f"id {min(demonstrations)} is a demonstration's, whose label stands in every prompt: correct the row and fit again"
        )
    return dict(zip(numbers, names, strict=True))


def labelled(task: Task, X: Any, y: Any, first: int = 0) -> list[Example]:
    """Examples numbered from `first`; raises UserError as `queries`, on an unknown label, or not as many labels as rows."""
    examples, labels = queries(task, X), list(y)
    if len(examples) != len(labels):
        raise errors.UserError(f"X has {len(examples)} rows, y {len(labels)} labels: each row needs one")
    return [
        Example(example.fields, sources.label_of(task, example.source, label), first + index, example.source)
        for index, (example, label) in enumerate(zip(examples, labels, strict=True))
    ]


def classes_like(task: Task, y: Iterable[Any]) -> np.ndarray:
    """The task's labels [C], in class order, as values of y's type: numbers where y has numbers, truth values where it has those."""
    values = list(y)
    if all(isinstance(value, bool | np.bool_) for value in values) and set(task.labels) <= {"False", "True"}:
        return np.array([label == "True" for label in task.labels])
    if all(isinstance(value, numbers.Integral) for value in values) and all(map(_is_number, task.labels)):
        return np.array([int(label) for label in task.labels])
    return np.array(task.labels)


def classes_of(task: Task, examples: Iterable[Example]) -> np.ndarray:
    """Classes [N] of examples."""
    return np.array([task.class_index(example.label) for example in examples], int)


def _is_number(label: str) -> bool:
    return label.lstrip("-").isdecimal() and str(int(label)) == label
