"""Titles, order and line styles of models, methods, tasks and numbers in tables and figures."""

import numbers
from collections.abc import Iterable, Sequence
from typing import Any

from knnprompt_jax.datastore import distances
from knnprompt_jax.report import published, results
from knnprompt_jax.report.results import METHODS
from knnprompt_jax.tasks import catalogue

_TASKS = {printed.lower(): printed for printed in (*published.tables()["max_shots"]["tasks"], "SST5")}
MOST_COMMON = "Most common class of the test rows"
HEADERS = {
    "model": "Model",
    "task": "Task",
    "demo_shots": "|D|",
    "anchor_shots": "|A|",
    "method": "Method",
    "ratio": "λ",
    "setting": "Setting",
    "regime": "Scenario",
}
_SHIPPED = {"tiny": "the tiny model", "smollm2": "SmolLM2-135M"}
_LAST = ("knn_l2", "knn", "knn_kl_labels")  # As in the paper's tables, our methods follow the baselines.
_BASELINES = sorted((name for name in METHODS if name not in _LAST), key=lambda name: not METHODS[name].printed_as)
_ORDER = {
    "model": list(published.SIZES.values()),
    "task": list(catalogue.PAPER_TASKS),
    "method": [*_BASELINES, *_LAST],  # The paper's baselines come first.
}


def task(name: str) -> str:
    """Return the name of a task as the paper prints it."""
    return _TASKS.get(name, name)


def method(name: str) -> str:
    """Return the title of a method; the name itself for an unknown method."""
    return METHODS[name].title if name in METHODS else name


def model(name: str) -> str:
    """Return the name of a model of the paper with the paper's size of it; of another model, the name as given."""
    sizes = {known: size for size, known in published.SIZES.items()}
    short = published.short_name(name)
    return f"{short} ({sizes[short]})" if short in sizes else _SHIPPED.get(name, name)


TITLES = {"method": method, "model": model, "task": task}


def text(axis: str, value: Any) -> str:
    """Return a value of an axis as a table's row shows it."""
    if axis in TITLES:
        return TITLES[axis](value)
    if axis == "m" and value == results.FILLS_CONTEXT:
        return "M_T"
    if value != value:  # NaN: the record has no such axis.
        return "–"
    return f"{value:g}" if isinstance(value, numbers.Real) else str(value)


def order(axis: str, value: Any) -> tuple:
    """Return a sort key: the paper's models, tasks and methods in its order, numbers by size, other values by name."""
    if axis in _ORDER:
        known = _ORDER[axis]
        name = published.short_name(value) if axis == "model" else value
        return (known.index(name), "") if name in known else (len(known), str(name))
    return (1, value) if isinstance(value, numbers.Real) else (2, str(value))


def ordered(axis: str, values: Iterable[Any]) -> list[Any]:
    """Return the distinct values of an axis in order."""
    return sorted(set(values), key=lambda value: order(axis, value))


def ordered_keys(axes: Sequence[str], keys: Iterable[tuple]) -> list[tuple]:
    """Return keys, each a value on every axis, in order, the first axis slowest."""
    return sorted(keys, key=lambda key: [order(axis, value) for axis, value in zip(axes, key, strict=True)])


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 task, 2 tasks."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def directions(records: Iterable[results.Record]) -> list[str]:
    """Return the directions of KL that the records' options set, for example KL(test ‖ anchor)."""
    names = {record.settings.get("options", {}).get("distance") for record in records}
    found = {distances.DISTANCES[name].direction for name in names if name in distances.DISTANCES}
    return sorted(distances.DISTANCES[direction].title for direction in found if direction)


def span(values: Iterable[int]) -> str:
    """Return whole numbers in words: 1–5, or 2, 4, 8."""
    values = sorted(set(values))
    if len(values) > 2 and values[-1] - values[0] == len(values) - 1:
        return f"{values[0]}–{values[-1]}"
    return ", ".join(map(str, values))
