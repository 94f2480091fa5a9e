"""The gate: SST2's accuracies beside those of the paper's released code."""

import dataclasses

import pytest

from knnprompt_jax.paper import experiment, experiments
from knnprompt_jax.report import published, results

SST2 = experiments.EXPERIMENTS["sst2"]


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


def test_the_gate_says_when_it_has_no_verdict(gate, make_record):
    mr = [dataclasses.replace(make_record("sst2", "mr", "knn", 1024, 1), accuracy=0.5, true=("0",) * 256)]
    assert gate(others=mr).startswith("gate: pass") and str(SST2.check(mr)).startswith("gate: no verdict")
    (table,), _ = SST2.draw(experiment.Data("sst2", results.frame(mr)))
    assert not table.is_ours
    assert "1 of 10 runs are missing" in gate(left_out={("icl", 4)})
    assert gate({("knn", 3): 3}.items(), left_out={("icl", 4)}).startswith("gate: FAIL"), "more runs cannot mend it"
    assert gate(model="tiny").startswith("gate: no verdict")
    assert gate(model="openai-community/gpt2-xl").startswith("gate: pass")
