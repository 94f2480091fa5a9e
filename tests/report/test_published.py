"""The paper's numbers as they ship."""

import collections
import decimal
import json
import statistics

import pytest

from knnprompt_jax.methods import registry
from knnprompt_jax.report import published, results
from knnprompt_jax.report.results import Score


def test_shipped_numbers_are_the_reference(shared):
    assert published.tables() == json.loads((shared / "paper" / "tables.json").read_text(encoding="utf-8"))


def find(table, model, m, method, task, regime="full"):
    """Return the table's number at a place, or the first other table's; None if no table has one."""
    found = published.matching(table, [method], [model], [task], [(regime, m)])
    found = found[(found.model == model) & (found.m == m) & (found.task == task)]
    return next(found.itertuples(), None)


@pytest.mark.parametrize(
    ("table", "model", "m", "method", "task", "score"),
    [
        ("few_shot", "gpt2-xl", 8, "knn", "trec", Score(63.7, 5.5, 10)),
        ("few_shot", "gpt2-xl", 2, "noisy_channel", "sst2", Score(82.6, 3.1, 10)),
        ("low_resource", "gpt2-large", 128, "icl_ensemble", "cb", Score(41.1, 3.1, 5)),
        ("low_resource", "opt-6.7b", results.FILLS_CONTEXT, "icl", "mr", Score(91.6, 1.1, 5)),
        ("low_resource", "bert-large-uncased", 128, "fine_tuning_bert", "rte", Score(58.1, 1.5, 5)),
        ("data_scaling", "opt-13b", results.FILLS_CONTEXT, "icl", "sst2", Score(89.0, 4.3, 5)),
        ("data_scaling", "gpt2-large", 1024, "knn_released", "trec", Score(86.7, 1.5, 5)),
        ("prompt_compose", "gpt2-xl", 512, "prompt_compose_trans_encoder", "agnews", Score(87.1, 1.7, 5)),
        ("distance", "gpt2-xl", 32, "knn_l2", "dbpedia", Score(95.1, 1.0, 5)),
        ("whole_vs_partial", "gpt2-xl", 1024, "knn_partial", "subj", Score(69.3, 8.9, 5)),
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
    regime = "few-shot" if table == "few_shot" else "full"
    found = find(table, model, m, method, task, regime)
    assert found.score == score and found.basis


@pytest.mark.parametrize(
    "place",
    [
        {"model": "tiny", "m": 8, "method": "knn", "task": "trec"},
        {"model": "gpt2-xl", "m": 7, "method": "knn", "task": "trec"},
        {"model": "gpt2-xl", "m": 8, "method": "linc", "task": "trec"},
        {"model": "gpt2-xl", "m": 8, "method": "knn", "task": "rte"},
    ],
)
def test_has_no_number_for_what_the_paper_did_not_run(place):
    assert find("few_shot", regime="few-shot", **place) is None


def test_another_tables_number_stands_where_the_own_has_none():
    assert find("fine_tuning", "opt-30b", 256, "knn", "mr").table == "data_scaling"
    assert find("whole_vs_partial", "gpt2-xl", 1024, "knn", "mr").table == "whole_vs_partial"


def rows(paper, table):
    return [(row["method"], row) for row in paper[table]["rows"] if "scores" in row]


def test_rows_that_rest_on_five_seeds_equal_the_five_seed_tables(shared):
    """What `paper_seeds.json` infers: from equal rows, or from rows beside them, or from CB's 56 rows."""
    paper = json.loads((shared / "paper" / "tables.json").read_text(encoding="utf-8"))
    scaling = [row["scores"] for row in paper["data_scaling"]["rows"]]
    equal = collections.Counter()
    for table in ("distance", "whole_vs_partial", "upper_bound", "low_resource"):
        for method, row in rows(paper, table):
            same = any(row["scores"].items() <= scores.items() for scores in scaling)
            count, basis = published.seeds(table, method)
            assert count == 5 and same == (basis == "equal to the five-seed scaling table's row")
            equal[table] += same
    assert equal == {"distance": 2, "whole_vs_partial": 2, "upper_bound": 2, "low_resource": 12}


def test_cb_says_that_the_other_rows_of_low_resource_rest_on_five_seeds(shared):
    """Every mean is a whole number of correct rows among 5 × 56; of ten seeds half the possible means are not."""
    paper = json.loads((shared / "paper" / "tables.json").read_text(encoding="utf-8"))
    others = [row for method, row in rows(paper, "low_resource") if method not in ("ICL", "kNN Prompting")]
    assert len(others) == 8
    for row in others:
        mean = decimal.Decimal(str(row["scores"]["CB"]["mean"]))
        possible = {(decimal.Decimal(100 * right) / 280).quantize(decimal.Decimal("0.1")) for right in range(281)}
        assert mean in possible


@pytest.mark.parametrize("experiment", ["few_shot", "low_resource", "data_scaling", "prompt_compose", "distance"])
def test_means_over_tasks_are_the_printed_averages(experiment):
    for row in published.tables()[experiment]["rows"]:
        assert statistics.fmean(cell["mean"] for cell in row["scores"].values()) == pytest.approx(row["avg"], abs=0.06)


@pytest.mark.parametrize("experiment", published.tables())
def test_every_method_of_the_paper_is_one_of_ours(experiment):
    for row in published.tables()[experiment].get("rows", ()):
        assert any(published.is_printed_as(name, row["method"]) for name in registry.METHODS)


@pytest.mark.parametrize(("name", "model"), [("openai-community/gpt2-xl", "gpt2-xl"), ("a/b/opt-13b", "opt-13b")])
def test_models_are_known_by_their_last_name(name, model):
    assert published.model_of(name) == model
