"""The paper's numbers as they ship."""

from knnprompt_jax.report import published


def find(table, model, m, method, task, regime="full"):
    """Return the table's number at a place, or the first other table's; None if no table has one."""
    found = published.matching(table, [method], [model], [task], [(regime, m)])
    found = found[(found.model == model) & (found.m == m) & (found.task == task)]
    return next(found.itertuples(), None)


def test_other_runs_have_no_number_and_a_table_prefers_its_own():
    assert find("few_shot", "tiny", 8, "knn", "trec", "few-shot") is None
    assert find("few_shot", "gpt2-xl", 7, "knn", "trec", "few-shot") is None
    assert find("fine_tuning", "opt-30b", 256, "knn", "mr").table == "data_scaling"
    assert find("whole_vs_partial", "gpt2-xl", 1024, "knn", "mr").table == "whole_vs_partial"
