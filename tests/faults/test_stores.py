"""Faults while classifiers and records are saved."""

import pytest

import knnprompt_jax as kp
from knnprompt_jax.classifier import estimator, saving
from knnprompt_jax.runs import changing, records
from knnprompt_jax.tasks.task import Example
from tests.faults import injection
from tests.runs.conftest import make_record

TASK = kp.Task("talk", ("text",), "{text}\nIt is", ("0", "1"), ("said", "asked"))
TEXTS = ["a dog", "a cat", "why not", "who is it", "it rains", "is it", "so there"]
NEW = [Example({"text": text}, "0", row, "") for row, text in enumerate(["it is", "it is", "what"])]


@pytest.fixture(scope="module")
def fitted():
    classifier = kp.KNNPrompting(kp.demo_model("tiny"), TASK, k=1, demo_shots=1)
    return classifier.fit(TEXTS, [0, 0, 1, 1, 0, 1, 0])


def content(folder):
    return [
        (row.row, row.label, dict(row.fields), row.content) for row in saving.read(folder / "store").content.anchors
    ]


@pytest.fixture(scope="module")
def other(fitted):
    return kp.KNNPrompting(fitted.model, TASK, k=1, demo_shots=0).fit(TEXTS[:3], [0, 1, 1])


@pytest.mark.parametrize("is_new", [True, False], ids=["new", "over another"])
def test_saving(fitted, other, folder, is_new):
    prepare = lambda folder: is_new or fitted.save(folder / "store")  # noqa: E731
    writer = lambda folder: other.save(folder / "store", overwrite=True)  # noqa: E731
    tally = injection.every_fault(folder, writer, content, prepare)
    assert tally.survived == tally.tried > 30


def test_appending_and_removing(fitted, folder):
    """At the end each row exists once and the removed ids do not, however often the process died."""
    first = int(fitted.store_.ids_N[0])

    def change(folder):
        with saving.lock(folder / "store"):
            saving.recover(folder / "store")
            classifier = estimator.restore(saving.read(folder / "store"), fitted.model)
            before = classifier.store_
            changing.remove(classifier, (first,))
            changing.append(classifier, NEW)
            if classifier.store_ is not before:
                saving.save(classifier, folder / "store", overwrite=True)

    prepare = lambda folder: fitted.save(folder / "store")  # noqa: E731
    tally = injection.every_fault(folder, change, content, prepare)
    assert tally.survived == tally.tried > 30


def test_records(folder):
    record = make_record()
    tally = injection.every_fault(
        folder,
        lambda folder: records.write(folder / "results", record),
        lambda folder: records.read(folder / "results" / record.file_name),
    )
    assert tally.survived == tally.tried > 10
