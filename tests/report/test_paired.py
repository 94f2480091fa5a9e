"""kNN Prompting against other methods in pairs: the same seeds, the same rows."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from knnprompt_jax.report import paired


def made(make_record, method, seed, right, m=8, task="mr", true=("0",) * 20, **fields):
    """A record that has the first `right` of 20 rows right."""
    predicted = tuple("0" if row < right else "1" for row in range(20))
    record = make_record("few_shot", task, method, m, seed, cell={"regime": "full"}, **fields)
    return dataclasses.replace(record, predicted=predicted, true=true, accuracy=right / 20)


def test_differences_are_of_the_seeds_that_both_have(make_record):
    records = [made(make_record, "knn", seed, right) for seed, right in ((1, 15), (2, 17), (3, 18), (4, 20))]
    records += [made(make_record, "icl", seed, right, m=4) for seed, right in ((1, 11), (2, 11), (3, 13), (5, 1))]
    table = paired.table("few_shot", records, ("m", "method"))
    (row,) = table.rows
    (cell,) = row.cells
    assert row.headers == ("8", "In-context learning") and table.headers == ("m", "against")
    assert (cell.ours.mean, cell.ours.std, cell.ours.count) == pytest.approx((25, 5, 3))
    assert cell.marks == (paired.DIFFERS,)  # t = 25 / (5 / sqrt 3) = 8.7 with two degrees of freedom: p = 0.013.
    assert paired.p_value([20, 30, 25]) == pytest.approx(stats.ttest_rel([75, 85, 90], [55, 55, 65]).pvalue)


def test_marks_are_those_of_both_records(make_record):
    records = [made(make_record, "knn", 1, 15), made(make_record, "icl", 1, 15)]
    table = paired.table(
        "few_shot", records, ("m", "method"), lambda pair: tuple(sorted(record.method for record in pair))
    )
    assert table.rows[0].cells[0].marks == ("icl", "knn")


def test_other_rows_are_no_pair(make_record):
    records = [made(make_record, "knn", 1, 15), made(make_record, "icl", 1, 11, true=("1",) * 20)]
    assert paired.table("few_shot", records, ("m", "method")) is None


def test_a_method_with_its_own_m_is_compared_at_that_m_alone(make_record):
    records = [made(make_record, "knn", 1, 15, m=m) for m in (8, 16)]
    records += [made(make_record, "knn_l2", 1, 11, m=16), made(make_record, "icl", 1, 11, m=4)]
    rows = paired.table("few_shot", records, ("m", "method")).rows
    assert [row.headers for row in rows] == [
        ("8", "In-context learning"),
        ("16", "In-context learning"),
        ("16", "kNN, L2 of hidden states"),
    ]


def test_one_seed_is_tested_over_its_rows(make_record):
    pair = made(make_record, "knn", 1, 15), made(make_record, "icl", 1, 8)
    assert paired.p_value([35], [pair]) == pytest.approx(2 * 0.5**7)  # Seven rows that only the first has right.
    assert paired.p_value([0], [pair[:1] * 2]) == 1 == paired.p_value([np.float64(4)] * 3)


def test_the_average_is_over_tasks_seed_by_seed(make_record):
    right = {("mr", 1): 15, ("mr", 2): 17, ("cr", 1): 19, ("cr", 2): 13}
    records = [made(make_record, "knn", seed, count, task=task) for (task, seed), count in right.items()]
    records += [made(make_record, "icl", seed, 11, task=task) for task, seed in right]
    (row,) = paired.table("few_shot", records, ("m", "method")).rows
    assert [cell.ours.mean for cell in row.cells] == pytest.approx([25, 25, 25])
    assert [cell.ours.std for cell in row.cells] == pytest.approx(
        [np.std([40, 10], ddof=1), np.std([20, 30], ddof=1), np.std([30, 20], ddof=1)]
    )
