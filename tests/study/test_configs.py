"""The config files of the paper's tables and figures: what they say agrees with the paper and with docs/paper.md."""

import ast

import pytest

from knnprompt_jax.cli import paper_settings as grids
from knnprompt_jax.report import published
from knnprompt_jax.study.paper_tables import EXPERIMENTS, of


@pytest.fixture
def read(pytestconfig):
    """A function that returns the docstring of a config as one line."""

    def read(name):
        text = (pytestconfig.rootpath / "configs" / f"{name}.py").read_text(encoding="utf-8")
        return " ".join(ast.get_docstring(ast.parse(text)).split())

    return read


def test_every_experiment_has_a_config_and_every_config_an_experiment(pytestconfig):
    found = {path.stem for path in (pytestconfig.rootpath / "configs").glob("*.py")}
    assert found == set(EXPERIMENTS)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_config_belongs_to_its_experiment(name):
    """A config with the name of another experiment would write its records into the other's folder."""
    settings = grids.shipped(name)
    assert settings.experiment == name
    assert of(settings).name == name


@pytest.mark.parametrize(
    ("name", "table", "row", "expected"),
    [
        ("few_shot", "few_shot", {"method": "kNN Prompting", "m": 32}, "kNN Prompting {:.2f}"),
        ("few_shot", "few_shot", {"method": "kNN Prompting (Partial)", "m": 32}, "on label words {:.2f}"),
        ("few_shot", "few_shot", {"method": "Noisy Channel", "m": 32}, "noisy channel {:.2f}"),
        ("few_shot", "few_shot", {"method": "Contextual Calibration", "m": 32}, "contextual calibration {:.2f}"),
        ("few_shot", "few_shot", {"method": "ICL", "m": 32}, "in-context learning {:.2f}"),
        ("low_resource", "low_resource", {"method": "kNN Prompting", "model": "1.5B"}, "kNN Prompting {:.2f}"),
        ("low_resource", "low_resource", {"method": "ICL Ensemble", "model": "1.5B"}, "ICL ensemble {:.2f}"),
        ("low_resource", "low_resource", {"method": "kNN Prompting", "model": "30B"}, "with opt-30b: {:.2f}"),
        ("low_resource", "low_resource", {"method": "BERT Large FT"}, "BERT large {:.2f}"),
        ("low_resource", "low_resource", {"method": "GPT Large FT"}, "GPT-2 large {:.2f}"),
        ("prompt_compose", "prompt_compose", {"method": "kNN Prompting", "m": 1024}, "kNN Prompting {:.2f}"),
        ("prompt_compose", "prompt_compose", {"method": "Trans-Encoder", "m": 1024}, "Trans-Encoder {:.2f}"),
        ("prompt_compose", "prompt_compose", {"method": "BM25", "m": 1024}, "BM25 {:.2f}"),
        ("prompt_compose", "prompt_compose", {"method": "SBERT", "m": 1024}, "SBERT {:.2f}"),
        ("prompt_compose", "prompt_compose", {"method": "SimCSE", "m": 1024}, "SimCSE {:.2f}"),
        ("distance", "distance", {"method": "LM Distribution + D_KL"}, "KL {:.2f}"),
        ("distance", "distance", {"method": "Contextual Repr + D_L2"}, "L2 {:.2f}"),
        ("whole_vs_partial", "whole_vs_partial", {"method": "kNN Prompting"}, "whole vocabulary {:.2f}"),
        ("whole_vs_partial", "whole_vs_partial", {"method": "kNN Prompting (Partial)"}, "label words {:.2f}"),
        ("fine_tuning", "data_scaling", {"model": "0.8B", "m": 1024}, "gpt2-large {:.2f}"),
        ("fine_tuning", "data_scaling", {"model": "30B", "m": 1024}, "opt-30b {:.2f}"),
        ("data_scaling", "data_scaling", {"model": "1.5B", "m": 1024}, "gpt2-xl {:.2f}"),
        ("data_scaling", "data_scaling", {"model": "2.7B", "m": 1024}, "opt-2.7b {:.2f}"),
        ("data_scaling", "data_scaling", {"model": "6B", "m": 1024}, "opt-6.7b {:.2f}"),
        ("data_scaling", "data_scaling", {"model": "13B", "m": 1024}, "opt-13b {:.2f}"),
    ],
)
def test_a_config_expects_the_papers_average(name, table, row, expected, read):
    (found,) = [each for each in published.tables()[table]["rows"] if row.items() <= each.items()]
    assert expected.format(found["avg"]) in read(name)


def test_the_gate_expects_the_released_accuracies(read):
    released = published.tables()["released_code_sst2"]
    for key in ("icl", "knn_prompting_1024"):
        *first, last = [f"{100 * accuracy:.2f}" for accuracy in released[key]]
        assert f"{', '.join(first)} and {last}" in read("sst2")
