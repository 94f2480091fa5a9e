"""Titles, order and line styles of models, methods, tasks and numbers in tables and figures."""

import numbers
from collections.abc import Iterable, Sequence
from typing import Any

from knnprompt_jax.methods import registry
from knnprompt_jax.report import drawing, published, results
from knnprompt_jax.tasks import catalogue

_TASKS = {printed.lower(): printed for printed in (*published.tables()["max_shots"]["tasks"], "SST5")}
HEADERS = {
    "model": "Model",
    "task": "Task",
    "shots": "m",
    "demo_shots": "|D|",
    "anchor_shots": "|A|",
    "method": "Method",
    "ratio": "λ",
    "setting": "Setting",
    "regime": "Scenario",
}
_SHIPPED = {"tiny": "the tiny model", "smollm2": "SmolLM2-135M"}
# The methods of each line style. Methods that are usually drawn together have different styles; others have the last.
_LOOKS = """
    knn icl_many_shot
    icl chosen linear_probe_layer
    contextual_calibration supervised_calibration prompt_compose_bm25 fine_tuning knn_centroid knn_chosen
    linc noisy_channel prompt_compose_sbert fine_tuning_bert hidden_centroids_layer tfidf knn_centroid_geometric
    batch_calibration noisy_channel_direct prompt_compose_simcse fine_tuning_gpt2 knn_partial linear_probe
    contextual_calibration_trainset noisy_channel_direct_plus prompt_compose_trans_encoder knn_l2 linear_probe_log_p
    domain_context_calibration noisy_channel_ensemble icl_ensemble demonstration_upper_bound hidden_centroids knn_released
"""
_LAST = ("knn_l2", "knn", "knn_partial")  # As in the paper's tables, our methods follow the baselines.
_BASELINES = [name for name in registry.METHODS if name not in _LAST]
_ORDER = {
    "model": list(published.SIZES.values()),
    "task": list(catalogue.PAPER_TASKS),
    "method": [*sorted(_BASELINES, key=lambda name: not registry.METHODS[name].printed_as), *_LAST],
}


def task(name: str) -> str:
    return _TASKS.get(name, name)


def method(name: str) -> str:
    return registry.METHODS[name].title if name in registry.METHODS else name


def model(name: str) -> str:
    """Return the model's name and, for a model of the paper, the paper's size of it."""
    sizes = {known: size for size, known in published.SIZES.items()}
    short = published.model_of(name)
    return f"{short} ({sizes[short]})" if short in sizes else _SHIPPED.get(short, short)


def text(axis: str, value: Any) -> str:
    """Return a value of an axis as a table's row shows it."""
    if axis in ("method", "model", "task"):
        return {"method": method, "model": model, "task": task}[axis](value)
    if axis == "m" and value == results.FILLS_CONTEXT:
        return "M_T"
    return f"{value:g}" if isinstance(value, numbers.Real) else str(value)


def order(axis: str, value: Any) -> tuple:
    """Return a sort key: the paper's models, tasks and methods in its order, numbers by size, other values by name."""
    if axis in _ORDER:
        known, name = _ORDER[axis], published.model_of(value) if axis == "model" else value
        return (known.index(name), "") if name in known else (len(known), str(name))
    return (1, value) if isinstance(value, numbers.Real) else (2, str(value))


def ordered(axis: str, values: Iterable[Any]) -> list[Any]:
    """Return the distinct values of an axis in order."""
    return sorted(set(values), key=lambda value: order(axis, value))


def ordered_places(axes: Sequence[str], places: Iterable[tuple]) -> list[tuple]:
    """Return tuples of values on several axes in order, the first axis slowest."""
    return sorted(places, key=lambda place: [order(axis, value) for axis, value in zip(axes, place, strict=True)])


def span(values: Iterable[int]) -> str:
    """Return whole numbers in words: 1–5, or 2, 4, 8."""
    values = sorted(set(values))
    if len(values) > 2 and values[-1] - values[0] == len(values) - 1:
        return f"{values[0]}–{values[-1]}"
    return ", ".join(map(str, values))


def looks(axis: str, values: Iterable[Any]) -> dict[Any, dict[str, Any]]:
    """Return a line style for each value; a method has the same style in every figure."""
    found = ordered(axis, values)
    if axis == "method":
        looks = [line.split() for line in _LOOKS.strip().splitlines()]
        places = {name: place for place, names in enumerate(looks) for name in names}
        return {name: drawing.look(places.get(name, len(looks))) for name in found}
    return {value: drawing.look(index) for index, value in enumerate(found)}
