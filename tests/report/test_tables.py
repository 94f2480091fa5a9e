"""Tables: verdicts, marks, references, and what is written for spreadsheets and Markdown."""

import csv
import functools
import io

import numpy as np
import pytest

from knnprompt_jax.paper import experiments
from knnprompt_jax.report import accuracy_table, published, scores, tables, templates
from knnprompt_jax.report.scores import Score
from knnprompt_jax.report.tables import Cell, Table, TableRow

FEW = {"regime": "few-shot"}


@pytest.mark.parametrize(
    ("ours", "within"),
    [
        (Score(60.0, 3.0, 5), True),
        (Score(53.8, 3.0, 5), False),  # 6.2 below, and two standard errors are 2 sqrt(9 / 5 + 36 / 10) = 4.65.
        (Score(55.4, 3.0, 5), True),
        (Score(60.0), None),
        (None, None),
    ],
)
def test_a_difference_is_judged_by_two_standard_errors(ours, within):
    assert Cell(ours, Score(60.0, 6.0, 10), comparable=True).within is within


def test_without_any_spread_only_rounding_is_forgiven():
    paper = Score(73.2, 0.0, 5)
    assert Cell(Score(73.214, 0.0, 5), paper, comparable=True).within
    assert not Cell(Score(73.3, 0.0, 5), paper, comparable=True).within


def test_nothing_is_subtracted_from_a_reference():
    assert Cell(Score(60.0, 3.0, 5), Score(60.0, 6.0, 10)).difference is None


def few_shot(records):
    paper = experiments.get("few_shot").paper(records)
    return accuracy_table.build("few_shot", records, ("m", "method"), "caption", paper)


def row(table, *headers):
    (found,) = (row for row in table.rows if row.headers == headers)
    return dict(zip(table.columns, found.cells, strict=True))


def test_a_cell_is_the_mean_over_seeds_beside_the_papers(make_record):
    records = [make_record("few_shot", "trec", "knn", 8, seed, cell=FEW) for seed in (1, 2, 3)]
    cell = row(few_shot(records), "8", "kNN Prompting")["TREC"]
    accuracies = [100 * np.mean(np.array(record.predicted) == np.array(record.true)) for record in records]
    assert (cell.ours.mean, cell.ours.std) == pytest.approx((np.mean(accuracies), np.std(accuracies, ddof=1)))
    assert (cell.paper, cell.comparable) == (Score(63.7, 5.5, 10), True)


def test_what_the_paper_prints_stands_there_without_a_run(make_record):
    table = few_shot([make_record("few_shot", "trec", "knn", 8, 1, cell=FEW)])
    cells = row(table, "32", "Noisy channel")
    assert table.columns[:6] == ("SST2", "SUBJ", "MPQA", "CR", "MR", "TREC") and len(table.rows) == 25
    assert cells["MR"].ours is None and cells["average"].paper_shown
    assert any("10 seeds" in note for note in table.notes)


def test_another_model_is_a_reference_without_a_difference(make_record):
    table = few_shot([make_record("few_shot", "trec", "knn", 8, seed, model="tiny", cell=FEW) for seed in (1, 2)])
    cell = row(table, "8", "kNN Prompting")["TREC"]
    assert cell.paper == Score(63.7, 5.5, 10) and cell.difference is None
    assert "gpt2-xl (1.5B)'s: a reference only" in table.notes[0]


def test_another_m_stands_beside_the_table_that_has_it(make_record):
    records = [make_record("low_resource", "mr", "knn", 64, seed, model="opt-6.7b") for seed in (1, 2)]
    paper = experiments.get("low_resource").paper(records)
    table = accuracy_table.build("low_resource", records, ("model", "method"), "caption", paper)
    assert table.headers == ("m", "Model", "Method")
    assert row(table, "64", "opt-6.7b (6B)", "kNN Prompting")["MR"].difference is not None
    assert row(table, "128", "opt-6.7b (6B)", "kNN Prompting")["MR"].ours is None


@pytest.mark.parametrize(
    ("fields", "signs"),
    [
        ([{"prompts": 100, "truncated_prompts": 5}], ""),
        ([{"prompts": 100, "truncated_prompts": 6}], "†"),
        ([{"prompts": 100, "truncated_prompts": 9}, {"prompts": 100}], ""),  # Of all seeds' prompts.
        ([{"note": "re-uses in-context learning: |D| = m"}], "‡"),
    ],
)
def test_truncated_and_reused_cells_are_marked_and_explained(make_record, fields, signs):
    records = [make_record("few_shot", "mr", "knn", 8, seed, **given) for seed, given in enumerate(fields)]
    table = accuracy_table.build("few_shot", records, ("m",), "caption")
    assert table.signs(table.rows[0].cells[0]) == signs
    assert [note[0] for note in table.footnotes] == list(signs)


def test_other_marks_are_letters_by_their_text():
    rows = (TableRow(("x",), (Cell(Score(1), marks=("two",)), Cell(Score(2), marks=("one", tables.TRUNCATED, "two")))),)
    table = Table("t", "", ("",), ("1", "2"), rows)
    assert [table.signs(cell) for cell in table.cells] == ["a", "b,†,a"]
    assert table.footnotes == ["a two.", "b one.", f"† {tables.TRUNCATED}."]


def test_an_average_needs_every_task_and_several_models_get_an_axis(make_record):
    records = [make_record("few_shot", "mr", "knn", 8, 1), make_record("few_shot", "cr", "knn", 8, 1)]
    records.append(make_record("few_shot", "cr", "knn", 8, 1, model="gpt2-large"))
    table = accuracy_table.build("few_shot", records, ("m", "method"), "caption")
    assert table.headers == ("Model", "m", "Method")
    assert table.columns == ("CR", "MR", "average")
    assert [row.cells[-1].ours is None for row in table.rows] == [True, False]


def test_the_papers_average_is_over_the_tasks_of_the_table(make_record):
    """Its table of data scaling prints that of ten tasks; few shots has six, of which it prints the average."""
    scaled = [number for number in published.numbers() if (number.table, number.m) == ("data_scaling", 1024)]
    knn = [number for number in scaled if (number.model, number.method) == ("gpt2-xl", "knn")]
    by_task = {number.task: number for number in knn}
    made = [make_record("upper_bound", task, "knn", 1024, 1) for task in ("cr", "mr")]
    build = functools.partial(accuracy_table.build, "upper_bound", made, ("method",), "caption")
    two = build([by_task[task] for task in ("cr", "mr", "average")]).rows[0].cells[-1]
    assert two.paper.mean == pytest.approx(np.mean([by_task[task].score.mean for task in ("cr", "mr")]))
    assert two.marks == (accuracy_table.OVER_THESE,) and two.difference is not None
    ten = build(knn).rows[0].cells[-1]
    assert ten.paper == by_task["average"].score and ten.marks == ("the average over the 2 of 10 tasks that were run",)
    one = build([by_task[task] for task in ("cr", "average")]).rows[0].cells[-1]
    assert one.paper == by_task["average"].score and one.marks == ("the paper's average is over 10 tasks",)


def test_the_best_of_several_templates_is_the_best_over_seeds(make_record):
    tried = {1: (0.9, 0.8, 0.5, 0.7), 2: (0.4, 0.8, 0.9, 0.7)}
    made = [
        make_record("few_shot", "mr", "noisy_channel", 8, seed, candidates=candidates, cell=FEW)
        for seed, candidates in tried.items()
    ]
    table = accuracy_table.build("few_shot", templates.settled(made), ("method",), "caption")
    means = {row.headers[0]: row.cells[0].ours.mean for row in table.rows}
    assert means == pytest.approx({"Noisy channel": 80, templates.OF_EACH_SEED.format("Noisy channel"): 90})


def test_of_random_prompts_the_share_as_good_as_the_best_is_told(make_record):
    made = make_record("upper_bound", "mr", "demonstration_upper_bound", 8, 1, candidates=(0.5, 0.75, 0.75, 0.25))
    assert Cell(scores.accuracy([made])).shown.endswith("(500 ‰)")


TABLE = Table(
    name="hostile",
    caption="a | b <script>",
    headers=("Name",),
    columns=("=SUM(A1)", "b|c\nd"),
    rows=(TableRow(("+1",), (Cell(Score(-1.25, 0.5, 3), Score(2.0, 0.25, 10), True, (tables.TRUNCATED,)), Cell())),),
)


def test_csv_has_a_line_for_each_cell_and_no_formula():
    header, *lines = csv.reader(io.StringIO(tables.to_csv(TABLE)))
    (line,) = (dict(zip(header, cells, strict=True)) for cells in lines)
    assert (line["Name"], line["column"]) == ("'+1", "'=SUM(A1)")
    assert float(line["difference"]) == -3.25
    assert float(line["two standard errors"]) == pytest.approx(2 * np.sqrt(0.25 / 3 + 0.0625 / 10))
    assert (line["within"], line["marks"], line["seeds"]) == ("False", "†", "3")


def test_markdown_shows_ours_the_papers_and_the_verdict():
    lines = tables.to_markdown(TABLE).splitlines()
    assert lines[4] == "| +1 | −1.2 ± 0.5 † (paper 2.0 ± 0.2, −3.2 ✗) | – |"
    assert lines[2] == "| Name | =SUM(A1) | b\\|c d |"
