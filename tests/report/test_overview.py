"""Tables of methods against tasks from any records."""

import dataclasses

import pytest

from knnprompt_jax.common import errors
from knnprompt_jax.report import names, overview

UNEVEN = ("0", "1", "1", "1")


def rows(table):
    """Return the texts of each row by its header."""
    return {row.headers[0]: [cell.text for cell in row.cells] for row in table.rows}


@pytest.fixture
def record(make_record):
    def make(method, seed, accuracy, task="mr", shots=7, true=("0", "0", "1", "1"), **fields):
        made = make_record("", task, method, shots, seed, class_counts={"0": {}, "1": {}}, **fields)
        return dataclasses.replace(made, accuracy=accuracy, true=true, predicted=("1",) * 4)

    return make


def test_methods_are_tabulated_against_tasks_by_shots(record):
    done = [
        *(record("knn", seed, 0.5 + seed / 4) for seed in (1, 2)),
        *(record("icl", seed, 0.25, candidates=(0.25, 0.125)) for seed in (1, 2)),
        *(record("icl", seed, 0.25, "trec", candidates=(0.25, 0.125), true=UNEVEN) for seed in (1, 2)),
        record("knn", 1, 0.75, "trec", true=UNEVEN),
        record("icl", 1, 0.5, shots=128),
    ]
    few, macro_f1, many = overview.by_shots(done)
    assert few.caption == "Accuracy in %, 7 train rows per class, 2 seeds" and few.columns == ("MR", "TREC")
    icl, knn = "In-context learning", "kNN Prompting"
    assert rows(few) == {
        icl: ["25.0 ± 0.0"] * 2,
        knn: ["87.5 ± 17.7", "75.0 (1)"],
        names.MOST_COMMON: ["50.0", "75.0"],
        f"{icl}, mean of 2": ["18.8 ± 0.0"] * 2,
        f"{icl}, worst of 2": ["12.5 ± 0.0"] * 2,
    }
    facts = overview.section(done).facts
    assert (facts["Model"], facts["m"], facts["Test rows"]) == ("gpt2-xl (1.5B)", "7", "4 per task")
    assert (facts["Demonstrations per class"], facts["KL direction"]) == ("2", "KL(anchor ‖ test)")
    assert rows(macro_f1)[knn] == ["42.9 (1)"]
    assert rows(many)[icl] == ["50.0"]


def test_numbers_of_demonstrations_have_rows_of_their_own(record):
    done = [
        record(method, seed, accuracy, task, shots, demo_shots=demo_shots)
        for method, accuracy, task, shots, demo_shots in (
            ("icl", 0.25, "mr", 7, 1),
            ("icl", 0.5, "mr", 7, 5),
            ("icl", 0.5, "trec", 7, 1),
            ("icl", 0.75, "mr", 128, 5),
            ("knn", 0.75, "mr", 7, 1),
            ("knn", 1.0, "trec", 7, 5),
        )
        for seed in (1, 2)
    ]
    few, many = (rows(table) for table in overview.by_shots(done))
    assert few == {
        names.MOST_COMMON: ["50.0", "50.0"],
        "In-context learning, 1 demonstration per class": ["25.0 ± 0.0", "50.0 ± 0.0"],
        "In-context learning, 5 demonstrations per class": ["50.0 ± 0.0", "–"],
        "kNN Prompting": ["75.0 ± 0.0", "100.0 ± 0.0"],
    }
    assert many == {names.MOST_COMMON: ["50.0"], "In-context learning": ["75.0 ± 0.0"]}


@pytest.mark.parametrize(
    ("seed", "fields", "message"),
    [
        (1, {"settings": {"options": {"k": 5}}, "demo_shots": 3}, "options.k"),
        (2, {"settings": {"options": {"k": 5}}}, "options.k"),
        (2, {"model": "tiny", "demo_shots": 3}, "model"),
        (2, {"source": {"rows": 31}}, "row options.rows"),
        (2, {"settings": {"model": "other weights"}}, "weights"),
        (1, {}, "same demo_shots and seed"),
    ],
)
def test_records_of_different_settings_are_not_mixed(record, seed, fields, message):
    records = [record("knn", 1, 0.5, settings={}), record("knn", seed, 0.25, **{"settings": {}} | fields)]
    with pytest.raises(errors.UserError, match=f"2 records .*{message}.*move some elsewhere: mr-knn"):
        list(overview.by_shots(records))


def test_methods_with_other_test_rows_are_not_mixed(record):
    records = [record("knn", 1, 0.5), record("icl", 1, 0.5, true=UNEVEN)]
    with pytest.raises(errors.UserError, match="different test rows; move some elsewhere: mr-knn.*, mr-icl"):
        list(overview.by_shots(records))
