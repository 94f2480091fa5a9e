"""The paper's numbers as they ship."""

import json
import statistics

import pytest

from knnprompt_jax.methods import registry
from knnprompt_jax.report import published


def test_shipped_numbers_are_the_reference(shared):
    assert published.tables() == json.loads((shared / "paper" / "tables.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("experiment", "model", "shots", "method", "task", "mean", "std", "seeds"),
    [
        ("few_shot", "gpt2-xl", 8, "knn", "trec", 63.7, 5.5, 10),
        ("few_shot", "gpt2-xl", 2, "noisy_channel", "sst2", 82.6, 3.1, 10),
        ("low_resource", "gpt2-large", 128, "icl_ensemble", "cb", 41.1, 3.1, 10),
        ("low_resource", "opt-6.7b", None, "icl", "mr", 91.6, 1.1, 10),
        ("low_resource", "bert-large-uncased", 128, "fine_tuning_bert", "rte", 58.1, 1.5, 10),
        ("data_scaling", "opt-13b", None, "icl", "sst2", 89.0, 4.3, 5),
        ("data_scaling", "gpt2-large", 1024, "knn_released", "trec", 86.7, 1.5, 5),
        ("prompt_compose", "gpt2-xl", 512, "prompt_compose_trans_encoder", "agnews", 87.1, 1.7, 5),
        ("distance", "gpt2-xl", 32, "knn_l2", "dbpedia", 95.1, 1.0, 10),
        ("whole_vs_partial", "gpt2-xl", 1024, "knn_partial", "subj", 69.3, 8.9, 10),
        ("upper_bound", "gpt2-xl", None, "demonstration_upper_bound", "subj", 86.0, None, 1),
    ],
)
def test_finds_numbers_of_the_paper(experiment, model, shots, method, task, mean, std, seeds):
    found = published.find(experiment, model=model, shots=shots, method=method, task=task)
    assert (found.mean, found.std, found.count) == (mean, std, seeds)


@pytest.mark.parametrize(
    "place",
    [
        {"model": "tiny", "shots": 8, "method": "knn", "task": "trec"},
        {"model": "gpt2-xl", "shots": 7, "method": "knn", "task": "trec"},
        {"model": "gpt2-xl", "shots": 8, "method": "linc", "task": "trec"},
        {"model": "gpt2-xl", "shots": 8, "method": "knn", "task": "rte"},
    ],
)
def test_has_no_number_for_what_the_paper_did_not_run(place):
    assert published.find("few_shot", **place) is None


def test_a_reference_is_the_main_models_at_the_tables_only_m():
    assert published.reference("low_resource", shots=16, method="knn", task="mr").mean == 86.4
    assert published.reference("few_shot", shots=16, method="knn", task="mr").mean == 84.8
    assert published.reference("few_shot", shots=17, method="knn", task="mr") is None


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
