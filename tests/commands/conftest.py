"""A classifier of the shipped model with few anchors, saved, and a job that takes it instead of loading it again."""

import json
import pathlib

import pytest

from knnprompt_jax import errors
from knnprompt_jax.classifier import classifier_file
from knnprompt_jax.classifier.estimator import KNNPrompting
from knnprompt_jax.tasks import catalogue


@pytest.fixture(scope="session")
def rows() -> list[dict]:
    """The demo's test rows."""
    text = (catalogue.demo_folder() / "dev_subsample.jsonl").read_text(encoding="utf-8")
    return [{"sentence": json.loads(line)["sentence"]} for line in text.splitlines()]


@pytest.fixture(scope="session")
def classifier(demo_classifier: KNNPrompting) -> KNNPrompting:
    return demo_classifier


@pytest.fixture(scope="session")
def saved(classifier: KNNPrompting, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("prediction") / "saved"
    classifier.save(path)
    return path


@pytest.fixture
def loaded(classifier: KNNPrompting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Saved classifiers get the model that is loaded already."""
    monkeypatch.setattr(classifier_file.Saved, "load_model", lambda saved, mesh: classifier.model)


def failure(function: object, *arguments: object, **options: object) -> str:
    """The one line of the user's mistake that a call ends in."""
    with pytest.raises(errors.UserError) as caught:
        function(*arguments, **options)
    return str(caught.value)
