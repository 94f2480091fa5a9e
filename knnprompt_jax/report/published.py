"""The paper's numbers, by our names of its models and methods."""

import functools
import importlib.resources
import json
import pathlib
import statistics
from collections.abc import Iterable
from typing import Any

from knnprompt_jax.methods import registry
from knnprompt_jax.report.scores import Score

MODEL = "gpt2-xl"  # "used for most analyses unless explicitly indicated": our reference where a table has several.
SIZES = {
    "0.8B": "gpt2-large",
    "1.5B": "gpt2-xl",
    "2.7B": "opt-2.7b",
    "6B": "opt-6.7b",
    "13B": "opt-13b",
    "30B": "opt-30b",
}
_SEEDS = 10  # Of every table that does not say 5.
_SHOTS = {"upper_bound": 1024}  # Not said beside the table: its row of kNN Prompting is the scaling table's.


def is_printed_as(method: str, printed: str) -> bool:
    """Whether the paper's tables call a method of ours so."""
    return method in registry.METHODS and printed in registry.METHODS[method].printed_as


def model_of(name: str) -> str:
    """A model's name without its owner or folders, as the paper's models are called here."""
    return pathlib.PurePath(name).name.lower()


def own_models() -> dict[str, str]:
    """The models of the methods that train one of their own."""
    return {
        name: model_of(method.settings().to_dict()["model"])
        for name, method in registry.METHODS.items()
        if method.own_model
    }


@functools.cache
def tables() -> dict[str, Any]:
    """Every table of the paper, as it ships with the package."""
    file = importlib.resources.files("knnprompt_jax") / "report" / "paper_tables.json"
    return json.loads(file.read_text(encoding="utf-8"))


@functools.cache
def numbers(experiment: str) -> dict[tuple[str, int | None, str, str], Score]:
    """The accuracies in % of a table with a column for each task; empty for an experiment that the paper only draws.

    They stand by model, shots (None where the row says M_T), method as the paper calls it, and task.
    """
    table = tables().get(experiment, {})
    trained = {name: model for method, model in own_models().items() for name in registry.get(method).printed_as}
    printed: dict[tuple[str, int | None, str, str], Score] = {}
    for row in table.get("rows", ()):
        model = trained.get(row["method"]) or SIZES.get(row.get("model")) or table["model"]
        shots = row.get("m", only_shots(experiment))
        by_task = {
            task: Score(cell["mean"], cell["std"], table.get("seeds", _SEEDS))
            for task, cell in row.get("scores", {}).items()
        }
        by_task |= {task: Score(best) for task, best in row.get("best", {}).items()}
        place = model, None if shots == "M_T" else shots, row["method"]
        printed |= {(*place, task.lower()): score for task, score in by_task.items()}
    return printed


def only_shots(experiment: str) -> int | None:
    """The m of a table in which every row has the same; in-context learning stands in it with M_T."""
    return tables().get(experiment, {}).get("m", _SHOTS.get(experiment))


def find(experiment: str, *, model: str, shots: int | None, method: str, task: str) -> Score | None:
    """The paper's number for a cell, if it has one; shots None is M_T."""
    if shots is None:
        shots = only_shots(experiment)
    printed_as = registry.METHODS[method].printed_as if method in registry.METHODS else ()
    found = (numbers(experiment).get((model, shots, printed, task)) for printed in printed_as)
    return next(filter(None, found), None)


def reference(experiment: str, *, shots: int | None, method: str, task: str) -> Score | None:
    """What the paper's main model reaches there, or at the table's only m: to be shown, not to be compared with."""
    model = own_models().get(method, MODEL)
    return find(experiment, model=model, shots=only_shots(experiment) or shots, method=method, task=task)


def average(scores: Iterable[Score]) -> Score:
    """The mean over tasks of the paper's means, for which it prints no spread."""
    return Score(statistics.fmean(score.mean for score in scores))
