"""Tables of accuracies: beside the paper's, and of methods for any records."""

import dataclasses

import numpy as np
import pytest

from knnprompt_jax.common import errors
from knnprompt_jax.report import accuracies, names, published, results, tables
from knnprompt_jax.report.results import Score

FEW = {"regime": "few-shot"}
UNEVEN = ("0", "1", "1", "1")


def build(records, name="few_shot", axes=("model", "m", "method"), paper=None):
    ours = results.frame(records)
    paper = published.of(name) if paper is None else paper
    return accuracies.build(name, "caption", ours, paper, axes)


def row(table, *headers, model="gpt2-xl (1.5B)"):
    (found,) = (row for row in table.rows if row.headers == (model, *headers))
    return dict(zip(table.columns, found.cells, strict=True))


def test_a_cell_is_the_mean_over_seeds_beside_the_papers(make_record):
    records = [make_record("few_shot", "trec", "knn", 8, seed, cell=FEW) for seed in (1, 2, 3)]
    table = build(records)
    cell = row(table, "8", "kNN Prompting")["TREC"]
    expected = [100 * np.mean(np.array(record.predicted) == np.array(record.true)) for record in records]
    assert (cell.ours.mean, cell.ours.std) == pytest.approx((np.mean(expected), np.std(expected, ddof=1)))
    assert cell.paper == Score(63.7, 5.5, 10)
    assert row(table, "8", "Noisy channel")["TREC"] == tables.Cell(paper=Score(41.6, 9.5, 10)), "nobody ran it"
    ours = tables.ours_only(table)
    assert (len(ours.rows), ours.columns) == (1, ("TREC", "average"))
    other_model = build([dataclasses.replace(record, model="tiny") for record in records])
    assert row(other_model, "8", "kNN Prompting", model="the tiny model")["TREC"].paper is None
    assert other_model.rows[0].headers[0] == "the tiny model", "models that ran come first"


@pytest.mark.parametrize(
    ("fields", "signs"),
    [
        ([{"prompts": 100, "truncated_prompts": 6}], "†"),
        ([{"prompts": 100, "truncated_prompts": 9}, {"prompts": 100}], ""),  # The share is of all seeds' prompts.
        ([{"note": "re-uses in-context learning: |D| = m"}], "‡"),
    ],
)
def test_truncated_and_reused_cells_are_marked_and_explained(make_record, fields, signs):
    records = [make_record("few_shot", "mr", "knn", 8, seed, **given) for seed, given in enumerate(fields)]
    table = build(records, axes=("m",), paper=published.of(""))
    assert table.rows[0].cells[0].marks == signs
    assert [note[0] for note in table.footnotes] == list(signs)


@pytest.mark.parametrize(
    ("ran", "mean"), [(["cr", "mr"], None), (published.tables()["max_shots"]["tasks"], pytest.approx(81.96))]
)
def test_our_average_stands_beside_the_papers_over_the_same_tasks(make_record, ran, mean):
    """The data-scaling table prints the average of ten tasks."""
    records = [make_record("data_scaling", task.lower(), "knn", 1024, 1) for task in ran]
    cell = row(build(records, "data_scaling"), "1024", "kNN Prompting")["average"]
    assert cell.ours.mean == pytest.approx(100 * np.mean([record.accuracy for record in records]))
    assert (cell.paper and cell.paper.mean) == mean


def test_a_row_that_lacks_a_task_of_its_model_has_no_average(make_record):
    records = [make_record("few_shot", task, "knn", 8, 1) for task in ("mr", "cr")]
    table = build([*records, make_record("few_shot", "mr", "icl", 8, 1)], paper=published.of(""))
    assert {found.headers[-1]: bool(found.cells[-1].ours) for found in table.rows} == {
        "In-context learning": False,
        "kNN Prompting": True,
    }


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
        *(record("icl", seed, 0.25) for seed in (1, 2)),
        *(record("icl", seed, 0.25, "trec", true=UNEVEN) for seed in (1, 2)),
        record("knn", 1, 0.75, "trec", true=UNEVEN),
        record("icl", 1, 0.5, shots=128),
    ]
    few, many = accuracies.by_shots(done)
    assert few.caption == "Accuracy in %, 7 train rows per class, 2 seeds" and few.columns == ("MR", "TREC")
    icl, knn = "In-context learning", "kNN Prompting"
    assert rows(few) == {icl: ["25.0 ± 0.0"] * 2, knn: ["87.5 ± 17.7", "75.0 (1)"], names.MOST_COMMON: ["50.0", "75.0"]}
    facts = accuracies.section(done).facts
    assert (facts["Model"], facts["m"], facts["Test rows"]) == ("gpt2-xl (1.5B)", "7", "4 per task")
    assert (facts["Demonstrations per class"], facts["KL direction"]) == ("2", "KL(anchor ‖ test)")
    assert rows(many)[icl] == ["50.0"]


@pytest.mark.parametrize(
    ("seed", "fields", "message"),
    [
        (2, {"settings": {"options": {"k": 5}}}, "options.k"),
        (2, {"model": "tiny", "demo_shots": 3}, "model"),
        (2, {"source": {"rows": 31}}, "row options.rows"),
        (2, {"settings": {"model": "other weights"}}, "weights"),
        (1, {}, "same seed"),
    ],
)
def test_records_of_different_settings_are_not_mixed(record, seed, fields, message):
    records = [record("knn", 1, 0.5, settings={}), record("knn", seed, 0.25, **{"settings": {}} | fields)]
    with pytest.raises(errors.UserError, match=f"2 records .*{message}.*move some elsewhere: mr-knn"):
        list(accuracies.by_shots(records))


def test_methods_with_other_test_rows_are_not_mixed(record):
    records = [record("knn", 1, 0.5), record("icl", 1, 0.5, true=UNEVEN)]
    with pytest.raises(errors.UserError, match="different test rows; move some elsewhere: mr-knn.*, mr-icl"):
        list(accuracies.by_shots(records))
