"""Differences from the shipped config: found in any setting or option, of all records or of some."""

import dataclasses

import pytest

from knnprompt_jax.paper import cells, experiment, experiments
from knnprompt_jax.report import results

FEW_SHOT = experiments.EXPERIMENTS["few_shot"].shipped


@pytest.fixture
def run(make_record):
    """A record as the shipped config makes it, except for some settings and options."""

    def made(method="noisy_channel", m=8, seed=1, options=(), **settings):
        draw = cells.Draw(seed, m, 1 if method == "knn" else m)
        usual = cells.GridCell(method, draw, (("regime", "few-shot"),)).options(FEW_SHOT).to_dict()
        own = {"label_token": "last", "options": {**usual, **dict(options)}}
        source = {"rows": 0, "split": "dev_subsample"}
        source |= {name: settings.pop(name) for name in list(settings) if name in source}
        record = make_record("few_shot", "mr", method, m, seed, demo_shots=draw.demo_shots, cell={"regime": "few-shot"})
        return dataclasses.replace(record, settings=own | settings, source=source)

    return made


def found(records):
    return experiment.Differences(results.frame(records), FEW_SHOT)


def test_differences_of_all_records_are_listed_once(run):
    records = [run(seed=seed, rows=100, label_token="first") for seed in (1, 2)]
    differences = found(records)
    assert differences.common == [
        "without Task SST2, SUBJ, MPQA, CR, TREC",
        "without Method In-context learning, Contextual calibration, kNN Prompting, kNN, label words",
        "without m 2, 4, 16, 32",
        "label_token = first instead of last",
        "rows = 100 instead of 0",
        "2 of 10 seeds",
    ]
    assert differences.marks(results.frame(records)) == ()
    assert found([]).common == []


def test_differences_of_some_records_mark_their_cells(run):
    plain, other = run("knn"), run(options={"template": 3, "text_tokens": 50}.items())
    differences = found([plain, other, run("knn", seed=2)])
    options = ("Noisy channel: template = 3 instead of 0", "Noisy channel: text_tokens = 50 instead of 0")
    assert differences.marks(results.frame([other])) == (*options, "1 of 10 seeds")
    assert "2 of 10 seeds" in differences.common
    assert differences.marks(results.frame([plain])) == ("1 of 10 seeds",)
