"""Analyses along other axes than m, and the paper's own differences."""

import itertools

import pytest

from tests.tools.small_records import make
from tools import analyses, scales


def test_the_effect_of_a_split_is_that_of_its_ends_averaged_over_the_other_axis():
    right = {(1, 1): 2, (1, 4): 5, (2, 1): 1, (2, 4): 2, (4, 1): 3, (4, 4): 6}
    records = [
        make("knn", task, 8, seed, count, demo_shots=demos, cell={"anchor_shots": anchors}, experiment="split_strategy")
        for ((demos, anchors), count), task, seed in itertools.product(right.items(), ("mr", "cr"), (3, 5))
    ]
    assert analyses.split_effect(records, "column").mean == pytest.approx(100 * (3 + 1 + 3) / 3 / 7)
    assert analyses.split_effect(records, "row").mean == pytest.approx(100 * (1 + 1) / 2 / 7)


def test_skewed_train_rows_are_compared_with_balanced_ones():
    num_right = {("A", 0.125): 2, ("A", 0.5): 5, ("B", 0.125): 0, ("B", 0.5): 0}
    records = [
        make(method, "mr", 16, seed, count, experiment="prior_reliance", cell={"setting": setting, "ratio": ratio})
        for ((setting, ratio), count), seed, method in itertools.product(num_right.items(), (1, 2), ("knn", "icl"))
    ]
    assert analyses.skew_effect(records, "train skewed", "knn").mean == pytest.approx(-300 / 7)
    assert analyses.skew_effect(records, "train skewed", "knn", "icl") == (0, 0, 0)
    assert analyses.skew_effect(records, "test skewed", "knn").mean == pytest.approx(-500 / 7)
    assert analyses.most_common(records) == ["Most common class of the test rows", "100.0", "100.0", "100.0", "–", "–"]


def test_other_methods_are_averaged_over_the_splits_that_were_fine_tuned():
    tuned = [make("fine_tuning", "mr", 8, 1, 7, accuracy=1.0), make("fine_tuning", "trec", 8, 1, 0, accuracy=0.0)]
    splits = (("mr", 1, 0.25), ("mr", 2, 1.0), ("trec", 1, 0.5))
    others = [make("knn", task, 8, seed, 7, accuracy=accuracy) for task, seed, accuracy in splits]
    found = analyses.beside_fine_tuning(tuned, scales.Scale(others), "smollm2", ["knn"], 8)
    assert found == ["100.0 / 0.0", "25.0 / 50.0"]
    with pytest.raises(ValueError, match="lacks runs of .*'trec', 1"):
        analyses.beside_fine_tuning(tuned, scales.Scale(others[:2]), "smollm2", ["knn"], 8)
