"""Tables: verdicts, marks, references, and what is written for spreadsheets and Markdown."""

import csv
import io

import numpy as np
import pytest

from knnprompt_jax.report import accuracy_table, tables
from knnprompt_jax.report.scores import Score
from knnprompt_jax.report.tables import Cell, Row, Table


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
    assert Cell(ours, Score(60.0, 6.0, 10), comparable=True).within(digits=1) is within


def test_without_any_spread_only_rounding_is_forgiven():
    paper = Score(73.2, 0.0, 5)
    assert Cell(Score(73.214, 0.0, 5), paper, comparable=True).within(1)
    assert not Cell(Score(73.3, 0.0, 5), paper, comparable=True).within(1)


def test_nothing_is_subtracted_from_a_reference():
    assert Cell(Score(60.0, 3.0, 5), Score(60.0, 6.0, 10)).difference is None


def test_a_cell_is_the_mean_over_seeds_beside_the_papers(make_record):
    records = [make_record("few_shot", "trec", "knn", 8, seed) for seed in (1, 2, 3)]
    (cell,) = accuracy_table.build(records, ("m", "method"), "caption").rows[0].cells
    accuracies = [100 * np.mean(np.array(record.predicted) == np.array(record.true)) for record in records]
    assert (cell.ours.mean, cell.ours.std) == pytest.approx((np.mean(accuracies), np.std(accuracies, ddof=1)))
    assert (cell.paper, cell.comparable) == (Score(63.7, 5.5, 10), True)


@pytest.mark.parametrize(("model", "m"), [("tiny", 8), ("gpt2-xl", 128)])
def test_another_model_or_m_gets_no_difference(make_record, model, m):
    records = [make_record("whole_vs_partial", "trec", "knn", m, seed, model=model) for seed in (1, 2)]
    table = accuracy_table.build(records, ("method",), "caption")
    assert table.rows[0].cells[0].paper == Score(83.0, 1.4, 10)
    assert table.rows[0].cells[0].difference is None
    assert "gpt2-xl (1.5B)'s at m = 1024: a reference only" in table.reference


@pytest.mark.parametrize(
    ("fields", "marks"),
    [
        ({"prompts": 100, "truncated_prompts": 5}, ""),
        ({"prompts": 100, "truncated_prompts": 6}, "†"),
        ({"note": "re-uses in-context learning: |D| = m"}, "‡"),
    ],
)
def test_truncated_and_reused_cells_are_marked_and_explained(make_record, fields, marks):
    table = accuracy_table.build([make_record("few_shot", "mr", "knn", 8, 1, **fields)], ("m",), "caption")
    assert table.rows[0].cells[0].marks == marks
    assert [note[0] for note in table.footnotes] == list(marks)


def test_an_average_needs_every_task_and_several_models_get_an_axis(make_record):
    records = [make_record("few_shot", "mr", "knn", 8, 1), make_record("few_shot", "cr", "knn", 8, 1)]
    records.append(make_record("few_shot", "cr", "knn", 8, 1, model="gpt2-large"))
    table = accuracy_table.build(records, ("m", "method"), "caption")
    assert table.headers == ("Model", "m", "Method")
    assert table.columns == ("CR", "MR", "average")
    assert [row.cells[-1].ours is None for row in table.rows] == [True, False]


TABLE = Table(
    name="hostile",
    caption="a | b <script>",
    headers=("Name",),
    columns=("=SUM(A1)", "b|c\nd"),
    rows=(Row(("+1",), (Cell(Score(-1.25, 0.5, 3), Score(2.0, 0.25, 10), True, "†"), Cell())),),
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
    assert lines[4] == "| +1 | −1.2 ± 0.5† (paper 2.0 ± 0.2, −3.2 ✗) | – |"
    assert lines[2] == "| Name | =SUM(A1) | b\\|c d |"
