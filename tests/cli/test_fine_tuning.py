"""The paper's hyper-parameters, and options of fine_tune that contradict each other."""

import pytest

from knnprompt_jax.cli.fine_tuning_settings import FineTuneSettings
from knnprompt_jax.common import errors


@pytest.mark.parametrize(
    ("task", "shots", "steps", "batch"), [("mr", 8, 125, 16), ("dbpedia", 256, 250, 4), ("cb", 257, 500, 8)]
)
def test_published_hyperparameters(task, shots, steps, batch):
    found = FineTuneSettings().hyperparameters(task, shots)
    assert (found.steps, found.batch, found.learning_rate, found.max_length) == (steps, batch, 1e-5, 256)
    assert (found.weight_decay, found.clip, found.dropout) == (0.01, 1.0, 0.1)
    chosen = FineTuneSettings(steps=3, batch=5).hyperparameters(task, shots)
    assert (chosen.steps, chosen.batch) == (3, 5)


def test_a_method_presets_the_model_and_a_given_model_replaces_it():
    assert FineTuneSettings(method="fine_tuning_bert").model_name == "google-bert/bert-large-uncased"
    assert FineTuneSettings(method="fine_tuning_bert", model="folder").model_name == "folder"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_file": "a.csv"}, "--train_file and --eval_file go together"),
        ({"train_file": "a.csv", "eval_file": "b.csv", "tasks": ("mr", "cr")}, "name one task for --train_file"),
        ({"tasks": ("nothing",)}, "nothing"),
        ({"train_file": "a.csv", "eval_file": "b.csv", "split": "test"}, "--split: has no effect with --eval_file"),
    ],
)
def test_contradicting_options(options, message):
    with pytest.raises(errors.UserError, match=message):
        FineTuneSettings(**options)
