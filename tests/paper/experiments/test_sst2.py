"""SST2 seed by seed beside what the released code's README prints, and the gate."""

import dataclasses

import pytest

from knnprompt_jax.paper import experiment, experiments
from knnprompt_jax.report import published

SST2 = experiments.get("sst2")


def cells(records, method):
    (table,), _ = SST2.draw(experiment.Shown("sst2", records))
    return next(row.cells for row in table.rows if row.headers[:2] == ("gpt2-xl (1.5B)", method))


def test_sst2_stands_beside_the_released_codes_seed_by_seed(make_record):
    records = [make_record("sst2", "sst2", method, m, 2) for method, m in (("icl", 16), ("knn", 1024))]
    icl, knn = (cells(records, method)[1] for method in ("In-context learning", "kNN Prompting"))
    assert (icl.paper_shown, knn.paper_shown) == ("0.8125", "0.8867")
    assert knn.difference == pytest.approx(records[1].accuracy - 0.8867)
    other = cells([make_record("sst2", "sst2", "knn", 64, 2)], "kNN Prompting")[1]
    assert other.difference is None


@pytest.fixture
def gate(make_record):
    """The verdict on records that are off by some rows, by (method, seed)."""
    released = published.tables()["released_code_sst2"]

    def verdict(off=(), model="gpt2-xl", left_out=()):
        records = []
        for method, m, key in (("icl", 16, "icl"), ("knn", 1024, "knn_prompting_1024")):
            for seed, expected in zip(released["seeds"], released[key], strict=True):
                right = round(256 * expected) + dict(off).get((method, seed), 0)
                made = make_record("sst2", "sst2", method, m, seed, model=model)
                records.append(dataclasses.replace(made, accuracy=right / 256, true=("0",) * 256))
        return SST2.check([record for record in records if (record.method, record.seed) not in left_out])

    return verdict


def test_the_gate_passes_on_the_released_accuracies_and_forgives_two_rows(gate):
    assert gate().startswith("gate: pass: every accuracy is the released one")
    assert gate({("knn", 3): -2}.items()).startswith("gate: pass: off by 2 of 256 rows at most")
    assert "seed 3: 0.8828, expected 0.8906 (−2 rows)" in gate({("knn", 3): -2}.items())


def test_the_gate_fails_and_says_by_how_much(gate):
    verdict = gate({("icl", 1): 3, ("knn", 5): 1}.items())
    assert verdict.startswith("gate: FAIL: off by up to 3 of 256 rows, more than 2")
    assert "In-context learning seed 1: 0.8555, expected 0.8438 (+3 rows)" in verdict


def test_the_gate_says_what_it_cannot_judge(gate):
    assert "1 of 10 runs are missing" in gate(left_out={("icl", 4)})
    assert gate(model="tiny").startswith("gate: nothing to say")
    assert gate(model="openai-community/gpt2-xl").startswith("gate: pass")
