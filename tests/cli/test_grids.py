"""The options of grids: what they refuse, and the numbers that they give."""

import dataclasses

import pytest

from knnprompt_jax.cli import paper_settings as grids
from knnprompt_jax.common import errors


def test_two_tasks_of_the_same_name_are_refused(tmp_path):
    """Their records would have the same names."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.yaml").write_text("{fields: [a], template: '{a}', labels: [b], label_words: [c]}")
    with pytest.raises(errors.UserError, match="two files have the task name 'x'"):
        grids.GridSettings(experiment="robustness", tasks=[str(path) for path in tmp_path.glob("*/x.yaml")])


def test_a_repeated_name_counts_once():
    settings = grids.GridSettings(
        experiment="robustness", tasks=("mr", "cr", "mr"), models=("tiny", "tiny"), methods=("knn", "icl", "knn")
    )
    assert (settings.tasks, settings.models, settings.methods) == (("mr", "cr"), ("tiny",), ("knn", "icl"))


def test_a_shard_has_an_index_from_0():
    settings = grids.GridSettings(experiment="robustness", shard="3/8")
    assert (settings.shard_index, settings.num_shards) == (2, 8)


@pytest.mark.parametrize("shard", ["9/8", "0/8", "half", "1/", "-1/3"])
def test_a_shard_that_does_not_exist_is_refused(shard):
    with pytest.raises(errors.UserError, match=f"--shard={shard}: write it as i/n with i from 1 to n"):
        grids.GridSettings(experiment="robustness", shard=shard)


def test_further_shots_are_few_shot():
    settings = grids.GridSettings(experiment="robustness", shots=(32, 64), few_shots=(2,))
    assert settings.regime_shots == [("full", 32), ("full", 64), ("few-shot", 2)]


def test_further_shots_are_refused_where_all_are_few_shot():
    """They would not replace --shots, and would leave out cells with more than M_T demonstrations."""
    with pytest.raises(errors.UserError, match=r"^--few_shots=4,8: .*; give --shots=4,8 --few_shots= instead$"):
        grids.GridSettings(experiment="few_shot", regime="few-shot", few_shots=(4, 8))


@pytest.mark.parametrize(
    ("experiment", "options", "message"),
    [
        ("split_strategy", {"shots": (64,)}, "--shots: m is the sum of --demo_shots and --anchor_shots; leave it out"),
        ("split_strategy", {"few_shots": (4,)}, "--few_shots: has no effect on a grid of split sizes"),
        ("max_shots", {"rows": 3}, "--rows: has no effect on counts"),
        ("max_shots", {"shard": "2/3"}, "--shard: has no effect on counts"),
    ],
)
def test_options_without_effect_are_refused(experiment, options, message):
    with pytest.raises(errors.UserError, match=f"^{message}"):
        dataclasses.replace(grids.shipped(experiment), **options)
