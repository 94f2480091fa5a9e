"""CSV cells are never formulas and are read back unchanged; control characters in terminal text are escaped."""

import csv
import io

import hypothesis
import pytest
from hypothesis import strategies

from knnprompt_jax.cli import app
from knnprompt_jax.common import errors, text_tables


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        *((text, f"'{text}") for text in ("=1+1", "-x", "@a", "+a", " =1", "\u00a0\n=1", "'=1", "'-1")),
        *((text, text) for text in ("-1.5", " -1.5", "+49", "a=b", " a", "", "'", "'a", "' '=1")),
    ],
)
def test_spreadsheets_run_no_cell_as_a_formula(text, cell):
    assert text_tables.to_cell(text) == cell and text_tables.from_cell(cell) == text


@hypothesis.given(strategies.text("'=+-@\t\r1x \u00a0\u200b\uff1d"))
def test_texts_are_read_back(text):
    cell = text_tables.to_cell(text)
    assert text_tables.from_cell(cell) == text
    assert cell == text or cell.startswith("'")


def test_no_label_acts_on_a_terminal(capsys):
    label, escaped = "\x1b]0;owned\x07\x9b2J\u202e é👩\u200d🚀", r"\x1b]0;owned\x07\x9b2J\u202e é👩" + "\u200d🚀"
    app.show(f"{label}\nnext")
    assert capsys.readouterr().out == f"{escaped}\nnext\n"
    assert str(errors.UserError(f"{label}: unknown")) == f"{escaped}: unknown"
    assert text_tables.render(["class"], [[f"{label}\n"]]).splitlines()[2:] == [f"{escaped}\\n"]


def test_tables_are_aligned_and_spreads_use_the_sample_standard_deviation():
    assert text_tables.render(["a", "bb"], [["long", "1"]]) == "a     bb\n----  --\nlong   1"
    assert text_tables.spread([0.1, 0.2, 0.6]) == "30.0 ± 26.5"  # sqrt((4 + 1 + 9) / 2) * 10
    assert text_tables.spread([0.25]) == "25.0"


def test_line_breaks_within_cells_do_not_end_a_row():
    rows = [["a\rb", "c\nd", "e\r\n"], ["", 'f"g', "h,i"]]
    text = text_tables.to_csv([*rows, ["j", 2, 0.5]]).decode("utf-8-sig")
    assert list(csv.reader(io.StringIO(text, newline=""), strict=True)) == [*rows, ["j", "2", "0.5"]]
