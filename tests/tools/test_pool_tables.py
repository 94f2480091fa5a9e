"""Tables of AutoClassifier: columns, cells, the best other method, and estimates against test rows."""

import pytest

from tests.tools.small_records import make
from tools import pool_tables

NOTE = "expected on new texts: accuracy {} % (95 % interval {} to {}), macro F1 1.0 %, log loss 0.300"


def records():
    """Yield AutoClassifier with two seeds on TREC, other methods with more or fewer, and one model without it."""
    for seed, right in ((1, 6), (2, 7)):
        note = NOTE.format(90.0, 88.0, 92.0)
        yield make("auto", "trec", 128, seed, right, note=note, settings={"options": {"encoder": ""}})
        yield make("linear_probe", "trec", 128, seed, 5)
        yield make("icl", "trec", 8, seed, 3)  # Fills the context, whatever m is.
        yield make("tfidf", "trec", 128, seed, 2, model="gemma-3-270m")
    yield make("linear_probe", "trec", 128, 3, 0)
    yield make("knn", "trec", 128, 1, 7)


@pytest.fixture(scope="module")
def own():
    return pool_tables.Results([*records()])


def test_a_method_has_a_mean_where_it_has_every_cell_of_the_pool(own):
    header, _, *rows = pool_tables.by_rows(own, "smollm2").splitlines()
    assert header == "| accuracy, % | TREC, m = 128 |"
    assert rows == [
        "| TF-IDF, ridge regression | 28.6 |",
        "| In-context learning | 42.9 |",
        "| Linear probe, last layer | 71.4 |",
        "| AutoClassifier | 92.9 |",
    ]
    assert pool_tables.seeds(own, "smollm2") == "TREC, m = 128: 2"
    assert not pool_tables.seeds(own, "gemma-3-270m") and not pool_tables.seeds(own, "smollm2", pool_tables.OTHER_TASKS)


def test_the_lead_is_over_the_best_method_with_the_same_rows(own):
    *_, row = pool_tables.leads(own, ["smollm2"]).splitlines()
    assert row.startswith("| SmolLM2-135M | +21.43 [") and row.endswith("(Linear probe, last layer) |")


def test_an_estimate_may_miss_its_interval_by_three_points(own):
    text = pool_tables.estimates(own)
    assert text == "on average -2.9 points; in 1 of 2 runs the accuracy is within 3 points of the printed interval"
