"""Tables: verdicts, footnotes, and output for spreadsheets and terminals."""

import csv
import io

import numpy as np
import pytest

from knnprompt_jax.report import tables
from knnprompt_jax.report.results import Score
from knnprompt_jax.report.tables import Cell, Table, TableRow


@pytest.mark.parametrize(
    ("ours", "paper", "within"),
    [
        (Score(60.0, 3.0, 5), Score(60.0, 6.0, 10), True),
        (Score(53.8, 3.0, 5), Score(60.0, 6.0, 10), False),  # 6.2 below; two standard errors are 4.65.
        (Score(55.4, 3.0, 5), Score(60.0, 6.0, 10), True),
        (Score(60.0), Score(60.0, 6.0, 10), None),
        (None, Score(60.0, 6.0, 10), None),
        (Score(73.214, 0.0, 5), Score(73.2, 0.0, 5), True),  # Without any spread, only rounding is allowed for.
        (Score(73.3, 0.0, 5), Score(73.2, 0.0, 5), False),
    ],
)
def test_a_difference_is_judged_by_two_standard_errors(ours, paper, within):
    assert Cell(ours, paper).within is within
    assert Cell(ours, paper, comparable=False).difference is None


TABLE = Table(
    name="hostile",
    caption="a | b <script>",
    headers=("Name",),
    columns=("=SUM(A1)", "b|c\nd"),
    rows=(TableRow(("+x",), (Cell(Score(-1.25, 0.5, 3), Score(2.0, 0.25, 10), tables.TRUNCATED), Cell())),),
)


def test_csv_has_a_line_per_cell_and_no_formula():
    header, *lines = csv.reader(io.StringIO(tables.to_csv(TABLE)))
    (line,) = (dict(zip(header, cells, strict=True)) for cells in lines)
    assert (line["Name"], line["column"]) == ("'+x", "'=SUM(A1)")
    assert float(line["difference"]) == -3.25
    assert float(line["two standard errors"]) == pytest.approx(2 * np.sqrt(0.25 / 3 + 0.0625 / 10), rel=1e-5)
    assert (line["within"], line["marks"], line["count"]) == ("False", "†", "3")


def test_text_shows_ours_the_papers_and_the_verdict():
    assert "+x    −1.2 ± 0.5 † (paper 2.0 ± 0.2, −3.2 ✗)" in tables.to_text(TABLE)
