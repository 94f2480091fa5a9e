"""The declarations of the paper's tables and figures: each has a grid that can be planned, and says what it costs."""

import dataclasses
import importlib
import importlib.util
import json
import pathlib
import pkgutil

import pytest

from knnprompt_jax import errors, options
from knnprompt_jax.paper import experiments

ROOT = pathlib.Path(__file__).resolve().parents[3]


def module(name):
    return importlib.import_module(f"{experiments.__name__}.{name}")


def grid(name):
    config = experiments.get(name).config()
    return options.from_config(experiments.settings_of(config), config)


def test_every_file_is_listed_under_its_name():
    files = {info.name for info in pkgutil.iter_modules(experiments.__path__)}
    assert files == set(experiments.EXPERIMENTS)
    for name, experiment in experiments.EXPERIMENTS.items():
        assert experiment.name == name and experiment is module(name).EXPERIMENT


@pytest.mark.parametrize("name", experiments.EXPERIMENTS)
def test_an_experiment_declares_a_grid(name, rows):
    given = grid(name)
    assert given.experiment == name
    assert given.direction == "released" and given.restore_dropped
    few_rows = dataclasses.replace(given, shots=tuple(min(9, m) for m in given.shots))
    found = experiments.get(name).cells_of(few_rows, rows, 8)
    assert found or experiments.get(name).count
    for cell in found:
        cell.options(given)


@pytest.mark.parametrize("name", experiments.EXPERIMENTS)
def test_an_experiment_says_its_cost_and_is_in_the_documentation(name):
    assert "\nCost: " in module(name).__doc__
    assert f"| `{name}` |" in (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "tasks", "models", "seeds"),
    [("few_shot", 6, 1, 10), ("low_resource", 10, 6, 10), ("data_scaling", 10, 6, 5), ("split_strategy", 5, 1, 10)],
)
def test_sizes_are_the_papers(name, tasks, models, seeds):
    given = grid(name)
    assert (len(given.task_names), len(given.model_names), len(given.seeds)) == (tasks, models, seeds)


def test_the_config_file_takes_a_name():
    spec = importlib.util.spec_from_file_location("paper_config", ROOT / "configs" / "paper.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    assert loaded.get_config("imbalance") == experiments.get("imbalance").config()
    with pytest.raises(errors.UserError, match="experiment='table_7': choose from max_shots, few_shot"):
        loaded.get_config("table_7")


def test_an_option_of_another_experiment_is_none_of_this_one():
    assert "shares" in experiments.get("imbalance").config()
    assert "shares" not in experiments.get("few_shot").config()


def test_sst2_tells_the_published_accuracies(shared):
    published = json.loads((shared / "paper" / "tables.json").read_text())["released_code_sst2"]
    text = " ".join(module("sst2").__doc__.split())
    for key in ("knn_prompting_1024", "icl"):
        assert ", ".join(f"{accuracy:.4f}" for accuracy in published[key]) in text
    assert grid("sst2").seeds == tuple(published["seeds"])
