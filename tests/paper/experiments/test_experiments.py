"""The declarations of the paper's tables and figures: each has a grid that can be planned, and says what it costs."""

import dataclasses
import importlib
import importlib.util
import pathlib
import pkgutil
import types

import pytest

from knnprompt_jax import errors, options
from knnprompt_jax.paper import experiments, whole

ROOT = pathlib.Path(__file__).resolve().parents[3]


def module(name):
    return importlib.import_module(f"{experiments.__name__}.{name}")


def grid(name):
    config = whole.config() if name == whole.NAME else experiments.get(name).config()
    return options.from_config(whole.settings_of(config), config)


def test_every_file_is_listed():
    files = {info.name for info in pkgutil.iter_modules(experiments.__path__)}
    declared = [each for file in files for each in module(file).EXPERIMENTS]
    assert {each.name: each for each in declared} == experiments.EXPERIMENTS and len(declared) == len(
        experiments.EXPERIMENTS
    )


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
def test_an_experiment_is_in_the_documentation(name):
    assert f"| `{name}` |" in (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "tasks", "models", "seeds"),
    [("few_shot", 6, 1, 10), ("low_resource", 10, 6, 5), ("data_scaling", 10, 6, 5), ("split_strategy", 5, 1, 10)],
)
def test_sizes_are_the_papers(name, tasks, models, seeds):
    given = grid(name)
    assert (len(given.task_names), len(given.model_names), len(given.seeds)) == (tasks, models, seeds)


def test_the_config_file_takes_a_name():
    spec = importlib.util.spec_from_file_location("paper_config", ROOT / "configs" / "paper.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    assert loaded.get_config("imbalance") == experiments.get("imbalance").config()
    with pytest.raises(errors.UserError, match="experiment='table_7': choose from all, sst2, max_shots"):
        loaded.get_config("table_7")


def test_an_option_of_another_experiment_is_none_of_this_one():
    assert "shares" in experiments.get("imbalance").config()
    assert "shares" not in experiments.get("few_shot").config()


def whole_grids(**narrowed):
    return {each.experiment: each for each in whole.grids(dataclasses.replace(grid(whole.NAME), **narrowed))}


def test_all_grids_are_those_that_ship_the_gate_first():
    found = whole_grids()
    assert list(found)[0] == "sst2" and set(found) == set(experiments.EXPERIMENTS)
    for name, each in found.items():
        assert each == grid(name)


def test_all_grids_are_narrowed_together():
    found = whole_grids(tasks="trec,sst2", seeds=(1, 2), shots=(32, 128), models="smollm2", rows=50)
    assert "imbalance" not in found and "sst2" not in found
    assert (found["data_scaling"].shots, found["data_scaling"].few_shots) == ((32, 128), ())
    for each in found.values():
        assert set(each.task_names) <= {"trec", "sst2"} and each.seeds in ((1, 2), (1,)) and each.rows == 50
        assert each.models == "smollm2"


@pytest.mark.parametrize("narrowed", [{"methods": "tfidf", "shots": (32,)}, {"tasks": "demo"}])
def test_where_nothing_is_left_of_any_grid_it_is_told(narrowed):
    name, value = list(narrowed.items())[0]
    with pytest.raises(
        errors.UserError, match=f"all: no table or figure has anything left to run with .*{name}={value!r}"
    ):
        whole_grids(**narrowed)


def test_the_gate_is_read_in_float32():
    found = whole_grids(dtype="bfloat16")
    assert {name for name, each in found.items() if each.dtype == "float32"} == {"sst2"}


def test_models_of_the_paper_are_run_where_a_grid_has_them():
    found = whole_grids(models="gpt2-large,opt-30b", tasks="mr")
    assert found["data_scaling"].models == "gpt2-large,facebook/opt-30b"
    assert found["few_shot"].models == "gpt2-large,opt-30b"


def test_few_shots_of_a_task_hide_no_other_task():
    few, full = (
        [types.SimpleNamespace(model="m", task=task, method=method, m=8, regime=regime) for task, method in places]
        for regime, places in (
            ("few", [("cb", "knn")]),
            ("full", [("cb", "knn"), ("mr", "knn"), ("mr", "linear_probe"), ("mr", "icl")]),
        )
    )
    joined = module("data_scaling")._joined(few, full)
    want = [("cb", "knn", "few"), ("mr", "knn", "full"), ("mr", "linear_probe", "full")]
    assert [(each.task, each.method, each.regime) for each in joined] == want
