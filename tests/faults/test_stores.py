"""Faults while classifiers and records are saved."""

import pytest

import knnprompt_jax as kp
from knnprompt_jax.classifier import classifier_file
from knnprompt_jax.report import records
from tests.faults import injection
from tests.study.small_world import make_record

TASK = kp.Task("talk", ("text",), "{text}\nIt is", ("0", "1"), ("said", "asked"))
TEXTS = ["a dog", "a cat", "why not", "who is it", "it rains", "is it", "so there"]


@pytest.fixture(scope="module")
def fitted():
    classifier = kp.KNNPrompting(kp.demo_model("tiny"), TASK, k=1, demo_shots=1)
    return classifier.fit(TEXTS, [0, 0, 1, 1, 0, 1, 0])


@pytest.fixture(scope="module")
def other(fitted):
    return kp.KNNPrompting(fitted.model, TASK, k=1, demo_shots=0).fit(TEXTS[:3], [0, 1, 1])


@pytest.mark.parametrize("is_new", [True, False], ids=["new", "over another"])
def test_classifiers(fitted, other, folder, is_new):
    """A killed process leaves the earlier file or the new one."""
    prepare = lambda folder: is_new or fitted.save(folder / "classifier")  # noqa: E731
    writer = lambda folder: other.save(folder / "classifier", overwrite=True)  # noqa: E731
    reader = lambda folder: classifier_file.read(folder / "classifier").content  # noqa: E731
    tally = injection.every_fault(folder, writer, reader, prepare)
    assert tally.survived + tally.refused == tally.tried > 20 and tally.refused <= 1


def test_records(folder):
    record = make_record()
    tally = injection.every_fault(
        folder,
        lambda folder: records.write(folder / "results", record),
        lambda folder: records.read_all(folder / "results"),
    )
    assert tally.survived == tally.tried > 10
