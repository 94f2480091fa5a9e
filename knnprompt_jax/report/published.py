"""The paper's numbers on the axes of our records: models, methods and tasks by our names."""

import dataclasses
import functools
import importlib.resources
import json
import pathlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from knnprompt_jax.methods import registry
from knnprompt_jax.report import scores
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
AVERAGE = "average"
TITLES = {  # The tables of accuracies by task; what several have is taken from the first.
    "few_shot": "few shots",
    "data_scaling": "data scaling",
    "low_resource": "low resource",
    "prompt_compose": "retrieved demonstrations",
    "distance": "distances",
    "whole_vs_partial": "whole and partial distributions",
    "upper_bound": "upper bounds",
}
_SHOTS = {"upper_bound": 1024}  # Not said beside the table: its row of kNN Prompting is the scaling table's.


@dataclasses.dataclass(frozen=True)
class Printed:
    """A number of the paper's: an accuracy in % on one task, or the average that a row ends in (`task` is AVERAGE).

    `m` is None for M_T, `tasks` are those of the row, and `basis` says from what the number of seeds (`score.count`) is inferred.
    """

    table: str
    printed_as: str
    method: str
    model: str
    m: int | None
    task: str
    score: Score
    basis: str
    tasks: tuple[str, ...]
    cell: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def is_printed_as(method: str, printed: str) -> bool:
    """Whether the paper's tables call a method of ours so."""
    return method in registry.METHODS and printed in registry.METHODS[method].printed_as


def model_of(name: str) -> str:
    """A model's name without its owner or folders, as the paper's models are called here."""
    return pathlib.PurePath(name).name.lower()


def canonical(name: str) -> str:
    """The paper's name of a model, if it is one of the paper's."""
    return model_of(name) if model_of(name) in {*SIZES.values(), *own_models().values()} else name


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
    return _read("paper_tables.json")


def seeds(table: str, printed: str) -> tuple[int, str]:
    """How many seeds a row of the paper's rests on, and from what that is inferred."""
    rows = _seeds()[table]
    count, basis = rows.get(printed) or rows["*"]
    return count, basis


@functools.cache
def numbers() -> tuple[Printed, ...]:
    """The accuracies of all tables with a column for each task."""
    return tuple(number for table in TITLES for row in tables()[table]["rows"] for number in _numbers(table, row))


def matching(
    table: str, methods: Sequence[str], models: Sequence[str], tasks: Sequence[str], places: Collection[tuple]
) -> list[Printed]:
    """The numbers of the named table, then of other tables with these methods, models, tasks and places: (regime, m).

    Each place comes once, from the first table that has it; `method` is the first of `methods` that the paper calls so.
    """
    ours = {printed: name for name in reversed(methods) for printed in registry.get(name).printed_as}
    known = set(map(model_of, models))
    found: dict[tuple, Printed] = {}
    for number in sorted(numbers(), key=lambda number: number.table != table):
        place = number.cell["regime"], number.m
        model_fits = number.model in known or registry.get(number.method).own_model
        fits = place in places and model_fits and number.task in (AVERAGE, *tasks)
        if number.printed_as in ours and (fits or number.table == table):
            method = ours[number.printed_as]
            found.setdefault((place, method, number.model, number.task), dataclasses.replace(number, method=method))
    return list(found.values())


def _numbers(table: str, row: Mapping[str, Any]) -> Iterator[Printed]:
    """The numbers of a table's row."""
    trained = {name: model for method, model in own_models().items() for name in registry.get(method).printed_as}
    about, (count, basis) = tables()[table], seeds(table, row["method"])
    best, permille = row.get("best", {}), row.get("permille", {})
    by_task = {task: Score(cell["mean"], cell["std"], count) for task, cell in row.get("scores", {}).items()}
    by_task |= {task: Score(mean, None, count, f"{permille[task]} ‰") for task, mean in best.items()}
    by_task |= {AVERAGE: Score(row["avg"], None, count)} if "avg" in row else {}
    shots = row.get("m", about.get("m", _SHOTS.get(table)))
    method = next(name for name in registry.METHODS if is_printed_as(name, row["method"]))
    fills_context = shots == "M_T" or (table != "few_shot" and registry.get(method).sees in ("demonstrations", "draws"))
    shared: dict[str, Any] = {
        "model": trained.get(row["method"]) or SIZES.get(row.get("model") or "") or about["model"],
        "m": None if fills_context else shots,
        "basis": basis,
        "tasks": tuple(task.lower() for task in by_task if task != AVERAGE),
        "cell": {"regime": scores.FEW_SHOT if table == "few_shot" else "full"},
    }
    for task, score in by_task.items():
        yield Printed(table, row["method"], method, task=task.lower(), score=score, **shared)


@functools.cache
def _seeds() -> dict[str, dict[str, list]]:
    return _read("paper_seeds.json")


def _read(name: str) -> Any:
    return json.loads((importlib.resources.files("knnprompt_jax") / "report" / name).read_text(encoding="utf-8"))
