"""The declarations of the paper's tables and figures, and the tables that an experiment builds itself."""

import dataclasses

import pytest

from knnprompt_jax import errors
from knnprompt_jax.paper import experiment, experiments
from knnprompt_jax.report import drawing, results
from knnprompt_jax.settings import grids


def test_settings_of_no_experiment_are_refused_with_the_choices():
    with pytest.raises(errors.UserError, match="--experiment=table_7: choose from data_scaling, robustness, few_shot"):
        experiments.of(grids.GridSettings(experiment="table_7"))


def test_settings_without_the_options_of_an_experiment_are_refused():
    with pytest.raises(errors.UserError, match="--experiment=split_strategy: give --config=configs/split_strategy.py"):
        experiments.of(grids.GridSettings(experiment="split_strategy"))


@pytest.mark.parametrize("name", [name for name, each in experiments.EXPERIMENTS.items() if not each.count])
def test_every_cell_of_a_config_finds_its_options(name, rows):
    declared = experiments.EXPERIMENTS[name]
    settings = grids.shipped(name)
    few_rows = dataclasses.replace(settings, shots=tuple(min(9, m) for m in settings.shots))
    cells = list(declared.cells(few_rows, rows, 8))
    assert {cell.method for cell in cells} == set(settings.methods)
    for cell in cells:
        cell.options(settings)


@pytest.mark.parametrize(("name", "method"), [("data_scaling", "knn_l2"), ("choice_of_k", "icl")])
def test_a_section_needs_no_method_of_the_shipped_config(make_record, tmp_path, name, method):
    with drawing.style():
        section = experiments.EXPERIMENTS[name].section([make_record(name, "mr", method, 32, 1)], tmp_path)
    assert any(cell.ours for table in section.tables for cell in table.cells)


@pytest.mark.parametrize("name", ["distance", "sst2"])
def test_records_of_other_settings_are_no_further_seeds(make_record, tmp_path, name):
    first = make_record(name, "sst2", "knn", 1024, 1)
    others = [
        (make_record(name, "sst2", "knn", 1024, 1, source={"rows": 31}), "rows_from.rows"),
        (make_record(name, "sst2", "knn", 1024, 2, demo_shots=5), "demo_shots"),
    ]
    for other, differing in others:
        with pytest.raises(errors.UserError, match=rf"2 records \(model gpt2-xl, .*\) differ in {differing}: move"):
            experiments.EXPERIMENTS[name].section([first, other], tmp_path)


@pytest.mark.parametrize("name", ["prior_reliance", "robustness", "data_scaling"])
def test_both_regimes_in_one_folder_are_drawn_apart(make_record, name):
    """Accuracies of the full regime do not vary over seeds."""
    records = [
        dataclasses.replace(
            make_record(name, "mr", "knn", 8, seed, cell={"setting": "A", "ratio": 0.5, "regime": regime}),
            accuracy=0.5 + seed * (regime == "few-shot") / 10,
        )
        for regime in ("full", "few-shot")
        for seed in (1, 2, 3)
    ]
    drawn, figures = experiments.EXPERIMENTS[name].draw(experiment.Data(name, results.frame(records)))
    ours = [cell.ours for table in drawn for cell in table.cells if cell.ours and cell.ours.std is not None]
    assert {round(score.std) for score in ours} <= {0, 10} and {round(score.mean) for score in ours} <= {50, 70}
    spreads = [
        cell.ours.mean for table in drawn if table.name == "robustness_spread" for cell in table.cells if cell.ours
    ]
    assert sorted(map(round, spreads)) == ([0, 10] if name == "robustness" else [])
    assert [len(figure.panels) for figure in figures if figure.name == "first"] == [1] * (name == "data_scaling")
