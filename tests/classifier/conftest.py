"""The shipped model, rows of the demo task, and a classifier fitted on some of them."""

import pytest

import knnprompt_jax as kp
from knnprompt_jax import tasks


@pytest.fixture(scope="session")
def model(tiny) -> kp.LanguageModel:
    return tiny


@pytest.fixture(scope="session")
def task() -> kp.Task:
    return tasks.get("demo")


@pytest.fixture(scope="session")
def rows(task) -> tuple[list[str], list[int]]:
    """97 texts and their labels, as numbers."""
    train = tasks.load_rows(task, "train")[:97]
    return [example.fields["sentence"] for example in train], [int(example.label) for example in train]


@pytest.fixture(scope="session")
def fitted(model, task, rows) -> kp.KNNPrompting:
    """Fitted on the first 67 rows with 2 demonstrations a class."""
    return kp.KNNPrompting(model, task, k=5, demo_shots=2).fit(rows[0][:67], rows[1][:67])
