"""Tables of accuracies beside the paper's."""

import numpy as np
import pytest

from knnprompt_jax.report import accuracies, published, results
from knnprompt_jax.report.results import Score

FEW = {"regime": "few-shot"}


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
    unrun = row(table, "32", "Noisy channel")
    assert {*table.columns[:6]} == {"TREC", "SST2", "SUBJ", "MPQA", "CR", "MR"} and len(table.rows) == 25
    assert unrun["MR"].ours is None and unrun["average"].paper_text
    assert any("10 seeds" in note for note in table.notes)


def test_another_model_has_rows_of_its_own(make_record):
    table = build([make_record("few_shot", "trec", "knn", 8, seed, model="tiny", cell=FEW) for seed in (1, 2)])
    assert row(table, "8", "kNN Prompting", model="the tiny model")["TREC"].paper is None
    assert row(table, "8", "kNN Prompting")["TREC"].paper == Score(63.7, 5.5, 10)


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


def test_the_papers_marks_of_truncated_prompts_are_shown():
    table = build([])
    marked = [cell.paper_text for cell in table.cells if cell.paper_text.endswith("(†)")]
    assert len(marked) == 27 and row(table, "16", "In-context learning")["SUBJ"].paper_text == "75.5 ± 11.4 (†)"


@pytest.mark.parametrize(
    ("ran", "mean"), [(["cr", "mr"], (86.7 + 84.4) / 2), (published.tables()["max_shots"]["tasks"], 81.96)]
)
def test_our_average_stands_beside_the_papers_over_the_same_tasks(make_record, ran, mean):
    """The data-scaling table prints the average of ten tasks."""
    records = [make_record("data_scaling", task.lower(), "knn", 1024, 1) for task in ran]
    cell = row(build(records, "data_scaling"), "1024", "kNN Prompting")["average"]
    assert cell.ours.mean == pytest.approx(100 * np.mean([record.accuracy for record in records]))
    assert cell.paper.mean == pytest.approx(mean)


def test_a_row_that_lacks_a_task_of_its_model_has_no_average(make_record):
    records = [make_record("few_shot", task, "knn", 8, 1) for task in ("mr", "cr")]
    table = build([*records, make_record("few_shot", "mr", "icl", 8, 1)], paper=published.of(""))
    assert {found.headers[-1]: bool(found.cells[-1].ours) for found in table.rows} == {
        "In-context learning": False,
        "kNN Prompting": True,
    }
