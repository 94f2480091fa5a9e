"""Cells of CSV files: no text is a formula, and each is read back as it was."""

import hypothesis
import pytest
from hypothesis import strategies

from knnprompt_jax import tables


@pytest.mark.parametrize(("text", "cell"), [("=1+1", "'=1+1"), ("-1.5", "-1.5"), ("-x", "'-x"), ("a=b", "a=b")])
def test_cells_are_no_formulas(text, cell):
    assert tables.to_cell(text) == cell


@hypothesis.given(strategies.text("'=+-@\t\r1x"))
def test_texts_are_read_back(text):
    cell = tables.to_cell(text)
    assert tables.from_cell(cell) == text
    assert cell == text or cell.startswith("'")
