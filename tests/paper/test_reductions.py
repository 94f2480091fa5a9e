"""Where records differ from the config that ships: found in any setting or option, of all records or of some."""

import dataclasses

import pytest

from knnprompt_jax.paper import cells, draws, experiments, reductions

FEW_SHOT = experiments.get("few_shot").shipped


@pytest.fixture
def run(make_record):
    """A record as the shipped config makes it, but for some settings and options."""

    def made(method="noisy_channel", m=8, seed=1, options=(), **settings):
        drawn = draws.Draw(seed, m, 1 if method == "knn" else m)
        usual = cells.GridCell(method, drawn, (("regime", "few-shot"),)).options(FEW_SHOT).to_dict()
        own = {
            "rows": 0,
            "split": "dev_subsample",
            "label_token": "last",
            "options": {**usual, **dict(options)},
        } | settings
        record = make_record(
            "few_shot", "mr", method, m, seed, demo_shots=drawn.demo_shots, cell={"regime": "few-shot"}
        )
        return dataclasses.replace(record, settings=own)

    return made


def found(records):
    return reductions.Reductions(records, FEW_SHOT)


def test_what_all_records_differ_in_is_said_once(run):
    records = [run(seed=seed, rows=100, label_token="first") for seed in (1, 2)]
    differences = found(records)
    assert differences.common == [
        "without In-context learning, Contextual calibration, kNN Prompting, kNN, label words",
        "without m = 2, 4, 16, 32",
        "1 of 6 tasks (without SST2, SUBJ, MPQA, CR, TREC)",
        "label_token = first in place of last",
        "rows = 100 in place of 0",
        "2 of 10 seeds",
    ]
    assert differences.of_cell(records) == ()


def test_what_some_records_differ_in_marks_their_cells(run):
    plain, other = run("knn"), run(options={"template": 3, "text_tokens": 50}.items())
    differences = found([plain, other, run("knn", seed=2)])
    told = (
        "Noisy channel: template = 3 in place of 0",
        "Noisy channel: text_tokens = 50 in place of 0",
        "1 of 10 seeds",
    )
    assert differences.of_cell([other]) == told and "2 of 10 seeds" in differences.common
    assert differences.of_cell([plain]) == ("1 of 10 seeds",)


def test_the_shipped_direction_is_no_difference(run):
    assert found([run("knn", options={"distance": "forward"}.items())]).common[-2:] == [
        "kNN Prompting: distance = forward in place of released",
        "1 of 10 seeds",
    ]
    assert not any("distance" in told for told in found([run("knn")]).common)


def test_a_bound_that_is_searched_for_once_has_all_its_seeds(make_record):
    records = [make_record("upper_bound", "mr", "demonstration_upper_bound", 1024, 1)]
    assert found(records).of_cell(records) == ()


def test_no_records_differ_in_nothing():
    assert found([]).common == []
