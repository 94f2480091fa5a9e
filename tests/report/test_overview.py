"""Tables of methods against tasks from any records."""

import dataclasses
import re

import pytest

from knnprompt_jax import errors
from knnprompt_jax.report import overview


def rows(text):
    """Return the cells of each line of a table by its first cell."""
    lines = [re.split(r"\s*\|\s*|\s{2,}", line.strip("| ")) for line in text.splitlines()]
    return {first: cells for first, *cells in lines}


@pytest.fixture
def record(make_record):
    def make(method, seed, accuracy, task="mr", shots=7, true=("0", "0", "1", "1"), **fields):
        made = make_record("", task, method, shots, seed, class_counts={"0": {}, "1": {}}, **fields)
        return dataclasses.replace(made, accuracy=accuracy, true=true, predicted=("1",) * 4)

    return make


@pytest.mark.parametrize("markdown", [False, True])
def test_methods_are_tabulated_against_tasks_by_shots(record, markdown):
    done = [
        *(record("knn", seed, 0.5 + seed / 4) for seed in (1, 2)),
        *(record("icl", seed, 0.25, task, candidates=(0.25, 0.125)) for task in ("mr", "trec") for seed in (1, 2)),
        record("knn", 1, 0.75, "trec", true=("0", "1", "1", "1")),
        record("icl", 1, 0.5, shots=128),
    ]
    few, many = overview.by_shots(done, markdown).split("128 shots per class, 1 seed\n")
    accuracies, macro_f1 = few.split("Macro F1 of tasks with classes of uneven size:\n")
    assert "7 shots per class, 2 seeds" in accuracies and accuracies.count("| ---: |") == markdown
    found = rows(accuracies)
    assert found["method"] == ["mr", "trec"] and found[overview.COMMONEST][0] == "50.0"
    assert found["kNN Prompting"] == ["87.5 ± 17.7", "75.0 (1)"]
    assert found["· mean of its 2"] == ["18.8 ± 0.0"] * 2 and found["· worst of its 2"] == ["12.5 ± 0.0"] * 2
    assert list(found).index("In-context learning") < list(found).index("kNN Prompting"), "the registry's order"
    assert rows(macro_f1)["kNN Prompting"] == ["42.9 (1)"]
    assert rows(many)["In-context learning"] == ["50.0"]


def test_records_of_different_settings_are_not_mixed(record):
    settings = {"options": {"k": 5}}
    pair = [record("knn", 1, 0.5, settings={}), record("knn", 1, 0.25, settings=settings, demo_shots=3)]
    message = "2 records of knn on mr, 7 shots, seed 1, that differ in demo_shots (2, 3), options.k (, 5): put them"
    with pytest.raises(errors.UserError, match=re.escape(message)):
        overview.by_shots(pair)
