"""How models, methods, tasks and numbers are called, ordered and styled in tables and figures."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from knnprompt_jax.methods import registry
from knnprompt_jax.report import drawing, published, scores
from knnprompt_jax.report.scores import Record
from knnprompt_jax.tasks import catalogue

_PRINTED_TASKS = ("SST2", "SUBJ", "MPQA", "AGNews", "CB", "CR", "DBPedia", "MR", "RTE", "TREC", "SST5")
TASKS = {printed.lower(): printed for printed in _PRINTED_TASKS}
HEADERS = {
    "model": "Model",
    "m": "m",
    "demo_shots": "|D|",
    "anchor_shots": "|A|",
    "method": "Method",
    "ratio": "λ",
    "setting": "Setting",
    "regime": "Scenario",
    "k": "k",
}
_SHIPPED = {"tiny": "the tiny model", "smollm2": "SmolLM2-135M"}
_LAST = ("knn_l2", "knn", "knn_partial")  # In the paper's tables ours stand below what they are compared with.
_METHODS = [
    *(name for name, declared in registry.METHODS.items() if declared.printed_as and name not in _LAST),
    *(name for name, declared in registry.METHODS.items() if not declared.printed_as and name not in _LAST),
    *_LAST,
]
_MODELS = list(published.SIZES.values())
_TASKS = list(catalogue.PAPER_TASKS)


def task(name: str) -> str:
    return TASKS.get(name, name)


def method(name: str) -> str:
    return registry.METHODS[name].title if name in registry.METHODS else name


def model(name: str) -> str:
    """The model's name, and the size by which the paper calls it."""
    sizes = {known: size for size, known in published.SIZES.items()}
    short = published.model_of(name)
    return f"{short} ({sizes[short]})" if short in sizes else _SHIPPED.get(short, short)


def plain(name: str) -> str:
    """A name that may stand in a file's name or an element's id."""
    return re.sub(r"[^a-z0-9]+", "-", published.model_of(name))


def text(axis: str, value: Any) -> str:
    """A place on an axis as a table's row shows it."""
    if axis == "method":
        return method(value)
    if axis == "model":
        return model(value)
    if value is None:
        return "M_T"
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def order(axis: str, value: Any) -> tuple:
    """Sorts places on an axis: the paper's models, tasks and methods in its order, M_T first, numbers by size."""
    known = {"method": _METHODS, "model": _MODELS, "task": _TASKS}.get(axis)
    if known is not None:
        name = published.model_of(value) if axis == "model" else value
        return (known.index(name), "") if name in known else (len(known), str(name))
    if value is None:
        return (0, 0)
    return (1, value) if isinstance(value, int | float) else (2, str(value))


def ordered(axis: str, values: Sequence[Any]) -> list[Any]:
    return sorted(set(values), key=lambda value: order(axis, value))


def span(values: Sequence[int]) -> str:
    """Whole numbers in words: 1–5, or 2, 4, 8."""
    values = sorted(set(values))
    if len(values) > 2 and values[-1] - values[0] == len(values) - 1:
        return f"{values[0]}–{values[-1]}"
    return ", ".join(map(str, values))


def ordered_places(axes: Sequence[str], places: Iterable[tuple]) -> list[tuple]:
    """Places on several axes, the first axis slowest."""
    return sorted(places, key=lambda place: [order(axis, value) for axis, value in zip(axes, place, strict=True)])


def look(axis: str, value: Any, others: Sequence[Any]) -> drawing.Look:
    """A method looks the same in every figure; models and numbers of shots are told apart from the `others` in theirs."""
    return method_look(value) if axis == "method" else drawing.look(ordered(axis, others).index(value))


def method_look(name: str) -> drawing.Look:
    return drawing.look(registry.METHODS[name].look if name in registry.METHODS else 7)


def by_task(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The records of each task, by its title, in the paper's order."""
    groups = scores.pool(records, "task")
    return {task(place[0]): groups[place] for place in ordered_places(("task",), groups)}


def panels(records: Sequence[Record]) -> list[tuple[str, list[Record]]]:
    """The records of each task, and of each model where there are several, with their panel's title."""
    models = scores.by_model(records)
    return [
        (f"{model(name)}, {title}" if len(models) > 1 else title, part)
        for name, of_model in models.items()
        for title, part in by_task(of_model).items()
    ]
