"""The paper's printed numbers on the axes of our records: models, methods and tasks under our names."""

import functools
import importlib.resources
import json
from collections.abc import Mapping
from typing import Any

import pandas as pd

from knnprompt_jax.models import hub
from knnprompt_jax.report import results
from knnprompt_jax.report.results import METHODS, Score

MODEL = "gpt2-xl"  # "used for most analyses unless explicitly indicated": the reference if a table has several models.
SIZES = {
    "0.8B": "gpt2-large",
    "1.5B": "gpt2-xl",
    "2.7B": "opt-2.7b",
    "6B": "opt-6.7b",
    "13B": "opt-13b",
    "30B": "opt-30b",
}
AVERAGE = "average"
TRUNCATED = "†"  # The note of the paper's scores with "necessary truncation".
# Tables of accuracies by task.
TABLES = ("few_shot", "data_scaling", "low_resource", "prompt_compose", "distance", "whole_vs_partial", "upper_bound")
_FOLDER = importlib.resources.files("knnprompt_jax") / "report"
_SHOTS = {"upper_bound": 1024}  # The table does not say m: its row of kNN Prompting equals the scaling table's.


def method_of(printed: str) -> str:
    """Return the first of our methods that has this name in the paper's tables."""
    return next(name for name, method in METHODS.items() if printed in method.printed_as)


def short_name(name: str) -> str:
    """Return a model's name without its owner, folders and revision, in lower case."""
    return hub.base_name(name).lower()


SHORT_OWN_MODELS = {name: short_name(model) for name, model in results.OWN_MODELS.items()}
"""The model of each method that trains one of its own."""


def paper_name(name: str) -> str:
    """Return the paper's name of a model; the name itself if the paper does not have the model."""
    return short_name(name) if short_name(name) in {*SIZES.values(), *SHORT_OWN_MODELS.values()} else name


@functools.cache
def tables() -> dict[str, Any]:
    """Return every table of the paper as it ships with the package."""
    return json.loads((_FOLDER / "paper_tables.json").read_text(encoding="utf-8"))


def num_seeds(table: str, printed: str) -> int:
    """Return the number of seeds behind a row of the paper; the file also says what it is inferred from."""
    rows = json.loads((_FOLDER / "paper_seeds.json").read_text(encoding="utf-8"))[table]
    count, _ = rows.get(printed) or rows["*"]
    return count


@functools.cache
def numbers() -> pd.DataFrame:
    """Return the accuracies of all TABLES, a row per number.

    `task` is AVERAGE for the average of a printed row, and `tasks` are the row's tasks.
    """
    rows = [(table, row) for table in TABLES for row in tables()[table]["rows"]]
    return pd.DataFrame([number for table, row in rows for number in _numbers(table, row)])


def of(table: str) -> pd.DataFrame:
    """Return the numbers of one table; none if it has no accuracies by task."""
    return numbers()[numbers().table == table]


def _numbers(table: str, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the numbers of one row of a table."""
    method = method_of(row["method"])
    count = num_seeds(table, row["method"])
    scores = {}
    for task, cell in row.get("scores", {}).items():
        scores[task] = Score(cell["mean"], cell["std"], count, TRUNCATED if cell.get("truncated") else "")
    for task, mean in row.get("best", {}).items():
        scores[task] = Score(mean, None, count, f"{row['permille'][task]} ‰")
    whole_table = tables()[table]
    m = row.get("m", whole_table.get("m", _SHOTS.get(table)))
    regime = results.FEW_SHOT if table == "few_shot" else results.FULL
    shared = {
        "table": table,
        "method": method,
        "model": SHORT_OWN_MODELS.get(method) or SIZES.get(row.get("model") or "") or whole_table["model"],
        "m": results.FILLS_CONTEXT if m == "M_T" else results.m_of(method, regime, m),
        "regime": regime,
        "tasks": tuple(task.lower() for task in scores),
    }
    if "avg" in row:
        scores[AVERAGE] = Score(row["avg"], None, count)
    return [{**shared, "task": task.lower(), "score": score} for task, score in scores.items()]
