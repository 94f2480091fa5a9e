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
    ("name", "table", "selections"),
    [
        ("few_shot", "few_shot", [{"m": 32}]),
        ("low_resource", "low_resource", [{"model": "1.5B"}, {"model": "30B"}, {"method": "BERT Large FT"}]),
        ("prompt_compose", "prompt_compose", [{"m": 1024}]),
        ("distance", "distance", [{}]),
        ("whole_vs_partial", "whole_vs_partial", [{}]),
        ("fine_tuning", "data_scaling", [{"model": "0.8B", "m": 1024}, {"model": "30B", "m": 1024}]),
        ("data_scaling", "data_scaling", [{"m": 1024}]),
    ],
)
def test_a_config_expects_the_papers_averages(name, table, selections, read):
    for selection in selections:
        averages = [row["avg"] for row in published.tables()[table]["rows"] if selection.items() <= row.items()]
        assert averages and all(f" {average:.2f}" in read(name) for average in averages)


def test_the_gate_expects_the_released_accuracies(read):
    released = published.tables()["released_code_sst2"]
    for key in ("icl", "knn_prompting_1024"):
        *first, last = [f"{100 * accuracy:.2f}" for accuracy in released[key]]
        assert f"{', '.join(first)} and {last}" in read("sst2")
