"""The declarations of the paper's tables and figures, and the tables that an experiment builds itself."""

import dataclasses
import pathlib

import numpy as np
import pytest

from knnprompt_jax.cli import paper_settings as grids
from knnprompt_jax.common import errors
from knnprompt_jax.report import drawing, published
from knnprompt_jax.study import paper_tables


def section(name, made):
    with drawing.style():
        return paper_tables.EXPERIMENTS[name].section(made, pathlib.Path())


def test_every_experiment_has_a_config_and_every_config_an_experiment(pytestconfig):
    found = {path.stem for path in (pytestconfig.rootpath / "configs").glob("*.py")}
    assert found == set(paper_tables.EXPERIMENTS)
    assert all(grids.shipped(name).experiment == name for name in found), "records go into the experiment's folder"


@pytest.mark.parametrize("name", ["table_7", "split_strategy"])
def test_settings_of_another_experiment_are_refused(name):
    with pytest.raises(errors.UserError, match=f"--experiment={name}: give --config=configs/NAME.py.*data_scaling"):
        paper_tables.of(grids.GridSettings(experiment=name))


@pytest.mark.parametrize("name", [name for name in paper_tables.EXPERIMENTS if name != "max_shots"])
def test_every_cell_of_a_config_finds_its_options(name, rows):
    declared = paper_tables.EXPERIMENTS[name]
    settings = grids.shipped(name)
    few_rows = dataclasses.replace(settings, shots=tuple(min(9, m) for m in settings.shots))
    cells = list(declared.cells(few_rows, rows, 8))
    assert {cell.method for cell in cells} == set(settings.methods)
    for cell in cells:
        cell.options(settings)


@pytest.mark.parametrize("name", ["data_scaling", "imbalance"])
def test_both_regimes_in_one_folder_are_drawn_apart(make_record, name):
    """Accuracies of the full regime do not vary over seeds."""
    records = [
        dataclasses.replace(
            make_record(name, "mr", "knn", 8, seed, cell={"ratio": 0.5, "regime": regime}),
            accuracy=0.5 + seed * (regime == "few-shot") / 10,
        )
        for regime in ("full", "few-shot")
        for seed in (1, 2, 3)
    ]
    cells = [cell for table in section(name, records).tables for cell in table.cells]
    ours = [cell.ours for cell in cells if cell.ours and cell.ours.std is not None]
    assert {round(score.std) for score in ours} == {0, 10} and {round(score.mean) for score in ours} == {50, 70}


def test_a_spread_is_the_mean_over_tasks(make_record):
    shares = {("mr", 1): 0.5, ("mr", 2): 0.7, ("cr", 1): 0.6, ("cr", 2): 0.6}
    records = [
        dataclasses.replace(make_record("robustness", task, "knn", 8, seed), accuracy=accuracy)
        for (task, seed), accuracy in shares.items()
    ]
    spread = section("robustness", records).tables[-1]
    (cell,) = (cell for cell in spread.cells if cell.ours)
    assert cell.ours.mean == pytest.approx(20 / np.sqrt(2) / 2)


@pytest.mark.parametrize(("ratios", "tasks", "num_ours"), [((0.125, 0.25, 0.375, 0.5), 5, 6), ((0.125, 0.5), 5, 4)])
def test_prior_reliance_is_averaged_over_tasks_as_in_the_paper(make_record, ratios, tasks, num_ours):
    records = [
        dataclasses.replace(
            make_record("prior_reliance", task, "icl", 8, seed, cell={"setting": "B", "ratio": ratio}),
            accuracy=0.4 + ratio / 2 + number / 100,
        )
        for number, task in enumerate(("sst2", "mpqa", "subj", "mr", "cr")[:tasks])
        for seed in (1, 2)
        for ratio in ratios
    ]
    (table,) = section("prior_reliance", records).tables
    (row,) = (row for row in table.rows if row.headers == ("gpt2-xl (1.5B)", "B", "In-context learning"))
    by_ratio = {0.125: 48.25, 0.25: 54.5, 0.375: 60.75, 0.5: 67.0}
    means = [by_ratio[ratio] for ratio in ratios]
    assert [cell.ours.mean for cell in row.cells if cell.ours] == pytest.approx([*means, np.mean(means), -18.75])
    assert [cell.paper.mean for cell in row.cells] == pytest.approx([45.9, 53.4, 60.9, 67.9, 57.04, -22.06])
    assert all((cell.difference is not None) == (num_ours == 6) for cell in row.cells[-2:])


@pytest.fixture
def gate(make_record):
    """The verdict on records that differ in some rows, by (method, seed)."""
    released = published.tables()["released_code_sst2"]

    def verdict(off=(), model="gpt2-xl", excluded=(), others=()):
        records = []
        for method, m, key in (("icl", 16, "icl"), ("knn", 1024, "knn_prompting_1024")):
            for seed, expected in zip(released["seeds"], released[key], strict=True):
                right = round(256 * expected) + dict(off).get((method, seed), 0)
                made = make_record("sst2", "sst2", method, m, seed, model=model)
                records.append(dataclasses.replace(made, accuracy=right / 256, true=("0",) * 256))
        left = [record for record in [*records, *others] if (record.method, record.seed) not in excluded]
        return "; ".join(paper_tables.check_sst2(left)[1])

    return verdict


def test_the_gate_allows_two_rows_of_difference(gate):
    assert gate().startswith("gate: pass: at most 0 of 256 rows differ")
    verdict = gate({("knn", 3): -2}.items())
    assert verdict.startswith("gate: pass: at most 2 of 256 rows differ")
    assert "kNN Prompting seed 3: 0.8828, expected 0.8906, 2 rows differ" in verdict
    assert gate({("icl", 1): 3, ("knn", 5): 1}.items()).startswith("gate: FAIL: up to 3 of 256 rows differ")


def test_the_gate_says_when_it_has_no_verdict(gate, make_record):
    mr = [dataclasses.replace(make_record("sst2", "mr", "knn", 1024, 1), accuracy=0.5, true=("0",) * 256)]
    assert gate(others=mr).startswith("gate: pass")
    assert "1 runs are missing" in gate(excluded={("icl", 4)})
    assert gate({("knn", 3): 3}.items(), excluded={("icl", 4)}).startswith("gate: FAIL"), "more runs cannot mend it"
    assert gate(model="tiny").startswith("gate: no verdict")
    assert gate(model="openai-community/gpt2-xl").startswith("gate: pass")
