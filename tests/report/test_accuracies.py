"""Tables of accuracies beside the paper's."""

import numpy as np
import pytest

from knnprompt_jax.report import accuracies, figures, published, results
from knnprompt_jax.report.results import Score

FEW = {"regime": "few-shot"}


def build(records, name="few_shot", axes=("m", "method"), paper=None):
    ours = results.frame(records)
    paper = published.of(name) if paper is None else paper
    return accuracies.build(name, ours, axes, "caption", paper)


def row(table, *headers):
    (found,) = (row for row in table.rows if row.headers == headers)
    return dict(zip(table.columns, found.cells, strict=True))


def test_a_cell_is_the_mean_over_seeds_beside_the_papers(make_record):
    records = [make_record("few_shot", "trec", "knn", 8, seed, cell=FEW) for seed in (1, 2, 3)]
    table = build(records)
    cell = row(table, "8", "kNN Prompting")["TREC"]
    expected = [100 * np.mean(np.array(record.predicted) == np.array(record.true)) for record in records]
    assert (cell.ours.mean, cell.ours.std) == pytest.approx((np.mean(expected), np.std(expected, ddof=1)))
    assert (cell.paper, cell.comparable) == (Score(63.7, 5.5, 10), True)
    unrun = row(table, "32", "Noisy channel")
    assert table.columns[:6] == ("TREC", "SST2", "SUBJ", "MPQA", "CR", "MR") and len(table.rows) == 25
    assert unrun["MR"].ours is None and unrun["average"].paper_text
    assert any("10 seeds" in note for note in table.notes)


def test_another_model_is_a_reference_without_a_difference(make_record):
    table = build([make_record("few_shot", "trec", "knn", 8, seed, model="tiny", cell=FEW) for seed in (1, 2)])
    cell = row(table, "8", "kNN Prompting")["TREC"]
    assert cell.paper == Score(63.7, 5.5, 10) and cell.difference is None
    assert "gpt2-xl (1.5B)'s: a reference only" in table.notes[0]


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
    assert table.signs(table.rows[0].cells[0]) == signs
    assert [note[0] for note in table.footnotes] == list(signs)


def test_the_papers_marks_of_truncated_prompts_are_shown():
    table = build([])
    marked = [cell.paper_text for cell in table.cells if cell.paper_text.endswith("(†)")]
    assert len(marked) == 27 and row(table, "16", "In-context learning")["SUBJ"].paper_text == "75.5 ± 11.4 (†)"
    assert any("(†)" in note for note in table.notes)
    assert not any("(†)" in note for note in build([], "distance", ("method",)).notes)


@pytest.mark.parametrize(
    ("printed", "ran", "mean"),
    [
        (["cr"], ["cr", "mr"], None),
        (published.tables()["max_shots"]["tasks"], ["cr", "mr"], (86.7 + 84.4) / 2),
        (published.tables()["max_shots"]["tasks"], ["cr"], None),
    ],
)
def test_our_average_stands_beside_the_papers_over_the_same_tasks(make_record, printed, ran, mean):
    """The data-scaling table prints the average of ten tasks."""
    numbers, tasks = published.of("data_scaling"), [task.lower() for task in printed]
    numbers = numbers[(numbers.m == 1024) & (numbers.model == "gpt2-xl") & (numbers.method == "knn")]
    records = [make_record("upper_bound", task, "knn", 1024, 1) for task in ran]
    table = build(records, "upper_bound", ("method",), numbers[numbers.task.isin([*tasks, "average"])])
    cells = row(table, "kNN Prompting")
    whole, own = cells["average"], cells.get("average of the tasks run")
    assert whole.paper.mean == numbers[numbers.task == "average"].score.item().mean and whole.ours is None
    assert whole.marks == (("the average over 10 tasks",) if printed == ["cr"] else ())
    assert (own is None) == (len(ran) == 1), "one task has no average"
    if own:
        ours = np.mean([record.accuracy for record in records])
        assert own.ours == Score(pytest.approx(100 * ours), None, 1, "2 tasks")
        assert (own.paper and own.paper.mean, own.difference is None) == (mean and pytest.approx(mean), mean is None)


@pytest.mark.parametrize(
    ("seeds", "marks"),
    [((1, 2), ("the average over the 2 seeds that all its tasks have",)), ((1, 2, 3), ()), ((1,), ())],
)
def test_an_average_over_fewer_seeds_than_its_cells_is_marked(make_record, seeds, marks):
    """With a single shared seed, the average is that of the cells."""
    records = [make_record("few_shot", "mr", "knn", 8, seed) for seed in (1, 2, 3)]
    records += [make_record("few_shot", "cr", "knn", 8, seed) for seed in seeds]
    (found,) = build(records, axes=("m",), paper=published.of("")).rows
    assert [cell.marks for cell in found.cells] == [(), (), marks]


@pytest.mark.parametrize(
    ("runs", "rows"),
    [
        ((("knn", "full", 4), ("knn", "few-shot", 12)), {("full",): 27.5, ("few-shot",): 67.5}),
        ((("knn", "full", 4), ("knn_l2", "full", 12)), {("kNN Prompting",): 27.5, ("kNN, L2 of hidden states",): 67.5}),
    ],
)
def test_records_of_other_regimes_or_methods_share_no_row(make_graded, runs, rows):
    """Each run has a row more right with each of two seeds: 4 of 20 rows right become 27.5 % on average."""
    records = [
        make_graded(method, seed, right + seed, cell={"regime": regime})
        for method, regime, right in runs
        for seed in (1, 2)
    ]
    table = build(records, axes=(), paper=published.of(""))
    assert {found.headers: found.cells[0].ours.mean for found in table.rows} == pytest.approx(rows)
    figure = figures.heatmaps if records[0].method != records[-1].method else figures.boxes
    frame = results.frame(records).assign(anchor_shots=7)
    assert len(figure("name", "Caption.", frame, published.of("")).panels) == 2


def test_regimes_that_share_no_row_have_no_column(make_graded):
    """In-context learning fills the context; kNN Prompting has few shots."""
    records = [make_graded("knn", 1, 15, cell=FEW), make_graded("icl", 1, 4)]
    assert build(records, paper=published.of("")).headers == ("m", "Method")
