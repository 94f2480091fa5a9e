"""The paper's numbers, by our names of its models and methods, and the grids in which it ran."""

import dataclasses
import functools
import importlib.resources
import json
import pathlib
import statistics
from collections.abc import Iterable
from typing import Any

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
METHODS = {
    "ICL": "icl",
    "In-Context Learning": "icl",
    "ICL Baseline": "icl",
    "ICL Ensemble": "icl_ensemble",
    "Contextual Calibration": "contextual_calibration",
    "ContextualCalibration w/ Balanced Prior": "contextual_calibration",
    "ContextualCalibration w/ Trainset Prior": "contextual_calibration_trainset",
    "Noisy Channel": "noisy_channel",
    "NoisyChannel": "noisy_channel",
    "kNN Prompting": "knn",
    "LM Distribution + D_KL": "knn",
    "kNN Prompting (Partial)": "knn_partial",
    "Contextual Repr + D_L2": "knn_l2",
    "BM25": "prompt_compose_bm25",
    "SBERT": "prompt_compose_sbert",
    "SimCSE": "prompt_compose_simcse",
    "Trans-Encoder": "prompt_compose_trans_encoder",
    "DemonSelection (upper)": "demonstration_upper_bound",
    "BERT Large FT": "fine_tuning_bert",
    "GPT Large FT": "fine_tuning_gpt2",
}
FINE_TUNED = {"fine_tuning_bert": "bert-large-uncased", "fine_tuning_gpt2": "gpt2-large"}
_SAME = {"knn_released": "knn"}  # The released direction made the paper's numbers.
_SEEDS = 10  # Of every table that does not say 5.
_SHOTS = {"upper_bound": 1024}  # Not said beside the table: its row of kNN Prompting is the scaling table's.


@dataclasses.dataclass(frozen=True)
class Number:
    """A number of one of the paper's tables; `shots` is None where the row says M_T."""

    model: str
    shots: int | None
    method: str
    task: str
    score: Score


def method_of(name: str) -> str:
    """The method of the paper's that one of ours stands for."""
    return _SAME.get(name, name)


def model_of(name: str) -> str:
    """A model's name without its owner or folders, as the paper's models are called here."""
    return pathlib.PurePath(name).name.lower()


@functools.cache
def tables() -> dict[str, Any]:
    """Every table of the paper, as it ships with the package."""
    file = importlib.resources.files("knnprompt_jax") / "report" / "paper_tables.json"
    return json.loads(file.read_text(encoding="utf-8"))


@functools.cache
def numbers(experiment: str) -> tuple[Number, ...]:
    """The accuracies in % of a table with a column a task; empty for an experiment that the paper only draws."""
    table = tables().get(experiment, {})
    found = []
    for row in table.get("rows", ()):
        method, shots = METHODS[row["method"]], row.get("m", only_shots(experiment))
        model = FINE_TUNED.get(method) or SIZES.get(row.get("model")) or table["model"]
        cells = {
            task: Score(cell["mean"], cell["std"], table.get("seeds", _SEEDS))
            for task, cell in row.get("scores", {}).items()
        }
        cells |= {task: Score(best) for task, best in row.get("best", {}).items()}
        for task, score in cells.items():
            found.append(Number(model, None if shots == "M_T" else shots, method, task.lower(), score))
    return tuple(found)


def only_shots(experiment: str) -> int | None:
    """The m of a table in which every row has the same; in-context learning stands in it with M_T."""
    return tables().get(experiment, {}).get("m", _SHOTS.get(experiment))


def find(experiment: str, *, model: str, shots: int | None, method: str, task: str) -> Score | None:
    """The paper's number for one cell, if it has one; shots None is M_T."""
    if shots is None:
        shots = only_shots(experiment)
    for number in numbers(experiment):
        if (number.model, number.shots, number.method, number.task) == (model, shots, method_of(method), task):
            return number.score
    return None


def reference(experiment: str, *, shots: int | None, method: str, task: str) -> Score | None:
    """What the paper's main model reaches there, or at the table's only m: to be shown, not to be compared with."""
    model = FINE_TUNED.get(method, MODEL)
    return find(experiment, model=model, shots=only_shots(experiment) or shots, method=method, task=task)


def average(scores: Iterable[Score]) -> Score:
    """The mean over tasks of the paper's means, for which it prints no spread."""
    return Score(statistics.fmean(score.mean for score in scores))
