"""The paper's numbers as they ship."""

import collections

import pytest

from knnprompt_jax.report import published, results
from knnprompt_jax.report.results import Score


def find(table, model, m, method, task, regime="full"):
    """Return the table's number at a place, or the first other table's; None if no table has one."""
    found = published.matching(table, [method], [model], [task], [(regime, m)])
    found = found[(found.model == model) & (found.m == m) & (found.task == task)]
    return next(found.itertuples(), None)


@pytest.mark.parametrize(
    ("table", "model", "m", "method", "task", "score"),
    [
        ("low_resource", "bert-large-uncased", 128, "fine_tuning_bert", "rte", Score(58.1, 1.5, 5)),
        ("data_scaling", "gpt2-large", 1024, "knn_released", "trec", Score(86.7, 1.5, 5)),
        (
            "upper_bound",
            "gpt2-xl",
            results.FILLS_CONTEXT,
            "demonstration_upper_bound",
            "subj",
            Score(86.0, None, 1, "3 ‰"),
        ),
        ("robustness", "gpt2-xl", 64, "knn", "average", Score(78.86, None, 5)),
    ],
)
def test_finds_numbers_of_the_paper(table, model, m, method, task, score):
    found = find(table, model, m, method, task, "few-shot" if table == "few_shot" else "full")
    assert found.score == score and found.basis


def test_other_runs_have_no_number_and_a_table_prefers_its_own():
    assert find("few_shot", "tiny", 8, "knn", "trec", "few-shot") is None
    assert find("few_shot", "gpt2-xl", 7, "knn", "trec", "few-shot") is None
    assert find("fine_tuning", "opt-30b", 256, "knn", "mr").table == "data_scaling"
    assert find("whole_vs_partial", "gpt2-xl", 1024, "knn", "mr").table == "whole_vs_partial"


def test_rows_that_rest_on_five_seeds_equal_the_five_seed_tables():
    """`paper_seeds.json` infers seeds from equal rows or from rows beside them."""
    scaling = [row["scores"] for row in published.tables()["data_scaling"]["rows"]]
    equal = collections.Counter()
    for table in ("distance", "whole_vs_partial", "upper_bound", "low_resource"):
        for row in (row for row in published.tables()[table]["rows"] if "scores" in row):
            same = any(row["scores"].items() <= scores.items() for scores in scaling)
            count, basis = published.seeds(table, row["method"])
            assert count == 5 and same == (basis == "equal to the five-seed scaling table's row")
            equal[table] += same
    assert equal == {"distance": 2, "whole_vs_partial": 2, "upper_bound": 2, "low_resource": 12}
