"""The declarations of the paper's tables and figures, and the tables that an experiment builds itself."""

import dataclasses

import pytest

from knnprompt_jax import errors
from knnprompt_jax.paper import experiment, experiments
from knnprompt_jax.report import drawing, published, results
from knnprompt_jax.settings import grids

SST2 = experiments.EXPERIMENTS["sst2"]


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


@pytest.mark.parametrize("regime", ["full", "few-shot"])
def test_the_first_figure_tells_of_few_shot_runs_only_if_there_are_some(make_record, tmp_path, regime):
    records = [make_record("data_scaling", "mr", method, 32, 1, cell={"regime": regime}) for method in ("icl", "knn")]
    with drawing.style():
        section = experiments.EXPERIMENTS["data_scaling"].section(records, tmp_path)
    assert ("where the context is full" in section.figures[0].caption) == (regime == "few-shot")


@pytest.mark.parametrize(("name", "method"), [("data_scaling", "knn_l2"), ("choice_of_k", "icl")])
def test_a_section_needs_no_method_of_the_shipped_config(make_record, tmp_path, name, method):
    with drawing.style():
        section = experiments.EXPERIMENTS[name].section([make_record(name, "mr", method, 32, 1)], tmp_path)
    assert any(cell.ours for table in section.tables for cell in table.cells)


def test_findings_of_few_shot_runs_name_these_runs_alone(make_record, tmp_path):
    """Few-shot runs have one demonstration and two tasks; full runs of the same m have eight and three."""
    made = [
        make_record(
            "data_scaling", task, method, 32, seed, demo_shots=demo_shots, cell={"regime": regime}, true=("0",) * 47
        )
        for regime, tasks, demo_shots in (("full", ("mr", "cr", "subj"), 8), ("few-shot", ("mr", "cr"), 1))
        for task in tasks
        for method in ("knn", "icl")
        for seed in (1, 2)
    ]
    with drawing.style():
        findings = experiments.EXPERIMENTS["data_scaling"].section(made, tmp_path).findings
    full, few = (finding[0] for finding in findings)
    assert "8 demonstrations per class" in full and full.endswith("3 tasks")
    assert "1 demonstration per class" in few and few.endswith("2 tasks")


def test_prior_reliance_is_averaged_over_tasks_as_in_the_paper(make_record):
    records = [
        dataclasses.replace(
            make_record("prior_reliance", task, "icl", 8, seed, cell={"setting": "B", "ratio": ratio}),
            accuracy=0.4 + ratio / 2 + number / 100,
        )
        for number, task in enumerate(("sst2", "mpqa", "subj", "mr", "cr"))
        for seed in (1, 2)
        for ratio in (0.125, 0.25, 0.375, 0.5)
    ]
    data = experiment.Data("prior_reliance", results.frame(records))
    (table,), _ = experiments.EXPERIMENTS["prior_reliance"].draw(data)
    (row,) = (row for row in table.rows if row.headers == ("B", "In-context learning"))
    assert [cell.ours.mean for cell in row.cells] == pytest.approx([48.25, 54.5, 60.75, 67.0, 57.625, -18.75])
    assert [cell.paper.mean for cell in row.cells] == pytest.approx([45.9, 53.4, 60.9, 67.9, 57.04, -22.06])
    assert all(cell.comparable for cell in row.cells)
    fewer = [record for record in records if record.cell["ratio"] in (0.125, 0.5)]
    lacking = [record for record in records if (record.task, record.cell["ratio"]) != ("cr", 0.25)]
    for left, columns in ((fewer, 4), (lacking, 5)):
        (table,), _ = experiments.EXPERIMENTS["prior_reliance"].draw(
            experiment.Data("prior_reliance", results.frame(left))
        )
        (row,) = (row for row in table.rows if row.headers == ("B", "In-context learning"))
        average, drop = row.cells[-2:]
        assert average.ours and drop.ours and not (average.paper or drop.paper), "they are of other numbers"
        assert all(cell.paper for cell in row.cells[:4])
        assert len([cell for cell in row.cells if cell.ours]) == columns


@pytest.fixture
def gate(make_record):
    """The verdict on records that differ in some rows, by (method, seed)."""
    released = published.tables()["released_code_sst2"]

    def verdict(off=(), model="gpt2-xl", left_out=(), others=()):
        records = []
        for method, m, key in (("icl", 16, "icl"), ("knn", 1024, "knn_prompting_1024")):
            for seed, expected in zip(released["seeds"], released[key], strict=True):
                right = round(256 * expected) + dict(off).get((method, seed), 0)
                made = make_record("sst2", "sst2", method, m, seed, model=model)
                records.append(dataclasses.replace(made, accuracy=right / 256, true=("0",) * 256))
        kept = [record for record in [*records, *others] if (record.method, record.seed) not in left_out]
        return str(SST2.check(kept))

    return verdict


def test_the_gate_allows_two_rows_of_difference(gate):
    assert gate().startswith("gate: pass: every accuracy is the released one")
    assert gate({("knn", 3): -2}.items()).startswith("gate: pass: at most 2 of 256 rows differ")
    assert "seed 3: 0.8828, expected 0.8906 (−2 rows)" in gate({("knn", 3): -2}.items())
    verdict = gate({("icl", 1): 3, ("knn", 5): 1}.items())
    assert verdict.startswith("gate: FAIL: up to 3 of 256 rows differ, more than 2")
    assert "In-context learning seed 1: 0.8555, expected 0.8438 (+3 rows)" in verdict


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


def test_the_gate_says_when_it_has_no_verdict(gate, make_record):
    mr = [dataclasses.replace(make_record("sst2", "mr", "knn", 1024, 1), accuracy=0.5, true=("0",) * 256)]
    assert gate(others=mr).startswith("gate: pass") and str(SST2.check(mr)).startswith("gate: no verdict")
    (table,), _ = SST2.draw(experiment.Data("sst2", results.frame(mr)))
    assert not table.is_ours
    assert "1 of 10 runs are missing" in gate(left_out={("icl", 4)})
    assert gate({("knn", 3): 3}.items(), left_out={("icl", 4)}).startswith("gate: FAIL"), "more runs cannot mend it"
    assert gate(model="tiny").startswith("gate: no verdict")
    assert gate(model="openai-community/gpt2-xl").startswith("gate: pass")
