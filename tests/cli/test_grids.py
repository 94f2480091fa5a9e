"""The options of grids and of fine-tuning: what they refuse, and the numbers that they give."""

import dataclasses

import pytest

from knnprompt_jax.cli import paper_settings as grids
from knnprompt_jax.cli.command_settings import FineTuneSettings
from knnprompt_jax.common import errors


def test_a_repeated_name_counts_once_and_a_shard_has_an_index_from_0():
    settings = grids.GridSettings(experiment="robustness", tasks=("mr", "cr", "mr"), models=("tiny",) * 2, shard="3/8")
    assert (settings.tasks, settings.models, grids.parse_shard(settings.shard)) == (("mr", "cr"), ("tiny",), (2, 8))


@pytest.mark.parametrize("shard", ["9/8", "0/8", "half"])
def test_a_shard_that_does_not_exist_is_refused(shard):
    with pytest.raises(errors.UserError, match=f"--shard={shard}: write it as i/n"):
        grids.GridSettings(experiment="robustness", shard=shard)


def test_further_shots_are_few_shot():
    settings = grids.ScalingSettings(experiment="data_scaling", shots=(32, 64), few_shots=(2,))
    assert settings.regime_shots == [("full", 32), ("full", 64), ("few-shot", 2)]


@pytest.mark.parametrize(
    ("experiment", "option", "value"),
    [("split_strategy", "shots", (64,)), ("max_shots", "rows", 3), ("max_shots", "shard", "2/3")],
)
def test_options_without_effect_are_refused(experiment, option, value):
    with pytest.raises(errors.UserError, match=f"^--{option}: has no effect on"):
        dataclasses.replace(grids.shipped(experiment), **{option: value})


@pytest.mark.parametrize(
    ("task", "shots", "steps", "batch"), [("mr", 8, 125, 16), ("dbpedia", 256, 250, 4), ("cb", 257, 500, 8)]
)
def test_published_hyperparameters(task, shots, steps, batch):
    found = FineTuneSettings().hyperparameters(task, shots)
    assert (found.steps, found.batch, found.learning_rate, found.max_length) == (steps, batch, 1e-5, 256)
    assert (found.weight_decay, found.clip, found.dropout) == (0.01, 1.0, 0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_file": "a.csv"}, "--train_file and --eval_file go together"),
        ({"train_file": "a.csv", "eval_file": "b.csv", "tasks": ("mr", "cr")}, "name one task for --train_file"),
    ],
)
def test_contradicting_options_of_fine_tuning(options, message):
    with pytest.raises(errors.UserError, match=message):
        FineTuneSettings(**options)
