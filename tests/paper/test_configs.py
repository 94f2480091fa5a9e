"""The configs of the paper's tables and figures: each declares a grid that can be planned, and says how to start it."""

import dataclasses
import importlib.util
import json
import pathlib

import pytest

from knnprompt_jax.paper import cells, settings
from knnprompt_jax.runs import settings as settings_lib

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "configs" / "paper"


def load(name):
    """The module of a config, and its grid."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = module.get_config().to_dict()
    options = config.pop("options")
    return module, dataclasses.replace(settings_lib.from_config(settings.GridSettings, config), options=options)


def test_every_experiment_has_its_config():
    assert sorted(path.stem for path in FOLDER.glob("*.py")) == sorted(settings.EXPERIMENTS)


@pytest.mark.parametrize("name", settings.EXPERIMENTS)
def test_a_config_declares_a_grid(name, rows):
    module, grid = load(name)
    assert grid.experiment == name
    assert f"--config=configs/paper/{name}.py" in module.__doc__
    assert grid.direction == "released" and grid.restore_dropped
    found = list(cells.enumerate_cells(dataclasses.replace(grid, shots=tuple(min(9, m) for m in grid.shots)), rows, 8))
    assert found or name == "max_shots"
    for cell in found:
        cell.options(grid)


@pytest.mark.parametrize(
    ("name", "tasks", "models", "seeds"),
    [("few_shot", 6, 1, 10), ("low_resource", 10, 6, 10), ("data_scaling", 10, 6, 5), ("split_strategy", 5, 1, 10)],
)
def test_sizes_are_the_papers(name, tasks, models, seeds):
    grid = load(name)[1]
    assert (len(grid.task_names), len(grid.model_names), len(grid.seeds)) == (tasks, models, seeds)


def test_sst2_tells_the_published_accuracies(shared):
    published = json.loads((shared / "paper" / "tables.json").read_text())["released_code_sst2"]
    text = " ".join(load("sst2")[0].__doc__.split())
    for key in ("knn_prompting_1024", "icl"):
        assert ", ".join(f"{accuracy:.4f}" for accuracy in published[key]) in text
    assert load("sst2")[1].seeds == tuple(published["seeds"])
