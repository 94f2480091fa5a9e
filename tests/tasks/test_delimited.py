"""Quotes, blanks and repeated headers in CSV and TSV: no row is lost or joined to another without a word."""

import io

import pytest

from knnprompt_jax import errors
from knnprompt_jax.tasks import delimited, formats

ROWS = "".join(f"words {number}|x\n" for number in range(7))


def read(text, delimiter=","):
    """Return the cells of each row, or the error of a malformed row."""
    kind = ".tsv" if delimiter == "\t" else ".csv"
    parsed = formats.TEXT_FORMATS[kind](io.StringIO(text.replace("|", delimiter), newline=""), "rows")
    return [str(row) if isinstance(row, errors.UserError) else "|".join(row.values()) for _, row in parsed]


@pytest.mark.parametrize(
    ("text", "rows", "is_named"),
    [
        ('"hello, she said|x\n', ['"hello, she said|x'], True),
        ('"hello|x\nbye"|y\n', ['"hello|x', 'bye"|y'], True),
        ('"hello" she said|x\n', ['"hello" she said|x'], False),
        ('"both"|x\n', ["both|x"], False),
        ('"both"| "x"\n', ["both|x"], False),
        ('a b| "x"" y" \n', ['a b|x" y'], False),
        ('a b| "x" y\n', ['a b| "x" y'], False),
        ('a b| "open\n', ['a b| "open'], True),
        ('"a ""b"""|x\n', ['a "b"|x'], False),
        ('"two\nlines"|x\n', ["two\nlines|x"], False),
        ('x|"two\n\nlines"\n', ["x|two\n\nlines"], False),
        ('"a\tb"|"c\td"\n', ["a\tb|c\td"], False),
        ('x|"open\ny|z\n', ['x|"open', "y|z"], True),
        ('"open\ny|z\n', ["rows:2: 1 cell, but the header has 2", "y|z"], True),
    ],
)
def test_quotes_are_text_in_tsv_except_around_a_whole_cell(text, rows, is_named, caplog):
    assert read(f"text|label\n{text}{ROWS}", "\t") == [*rows, *ROWS.splitlines()]
    assert ("rows:2: a quote that its cell does not close is read as text" in caplog.text) == is_named


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ('"open|x\n', ["rows:2: not CSV: unexpected end of data: a quote is not closed"]),
        ('"open|x\nb|y\n"c"|z\n', ["rows:2: not CSV: ',' expected after a closing quote", "b|y", "c|z"]),
        ('"two\nlines"|5" disk\n', ['two\nlines|5" disk']),
        ('"two ""\nof ""three"" lines"|x\n', ['two "\nof "three" lines|x']),
        ('"two\nlines" more|x\n', ["rows:2: not CSV: ','", "rows:3: not CSV: an odd number of quotes, after a quote"]),
        ('5" disk|x\n', ['5" disk|x']),
        ('"two, 3|\nlines"|x\n', ["two, 3,\nlines|x"]),
    ],
)
def test_reading_resumes_at_the_line_after_a_lost_quote(text, rows):
    found = read(f"text|label\n{text}{ROWS}")
    assert all(map(str.startswith, found, rows)) and found[len(rows) :] == ROWS.splitlines()


@pytest.mark.parametrize(("row", "delimiter"), [('x","y', ","), ('"a', ","), ('x"\t"y', "\t"), ('x\t"y', "\t")])
def test_many_lost_quotes_take_linear_time(row, delimiter):
    """Each attempt to read to the end of the file, or to split all earlier lines again, would take hours."""
    header = f"text{delimiter}label\n"
    lines = iter([header, *[f"{row}\n"] * 20_000])
    assert sum(1 for _ in delimited.read(lines, "rows", delimiter)) >= 19_999


@pytest.mark.parametrize("num_lines", [1, 3, 7])
def test_a_cell_of_many_lines_like_rows_is_named(num_lines, caplog):
    swallowed = "".join(f"words {number}|x\n" for number in range(num_lines))
    assert len(read(f'text|label\n"hello|x\n{swallowed}bye"|y\n')) == 1
    assert f"rows:2: one cell spans {num_lines + 2} lines that look like rows" in caplog.text
    caplog.clear()
    assert read('text|label\n"Dear team,\nplease\ncall,\nme,\nnow"|y\n') and not caplog.text


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ('label, text\nx, "a, b"\n', ["x|a, b"]),
        ('label, "text"\nx, "a ""b""\nc"\n', ['x|a "b"\nc']),
        ('label,\t"text"\nx,\u00a0"a"\n', ["x|a"]),
        ('"label" ,text\n', "rows:1: not CSV: ',' expected after a closing quote"),
        ("label, text\nx, a\n", ["x| a"]),
        ('label, "text" \nx, "a" \n', ["x|a"]),
        ('label, text\nx, "a" b\n', ["rows:2: not CSV: ',' expected after a closing quote"]),
        ('label; text\nx; "a; b"\n', ["x|a; b"]),
        ('\ufeff\ufeff"label\u200b",\u00a0text\u00ad\nx,y\n', ["x|y"]),
    ],
)
def test_blanks_before_a_quote_and_around_names_do_not_count(text, rows):
    if isinstance(rows, str):
        with pytest.raises(errors.UserError, match=rows):
            read(text)
        return
    assert read(text) == rows
    ((_, row),) = formats.read_csv(io.StringIO(text, newline=""), "rows")
    assert isinstance(row, errors.UserError) or list(row) == ["label", "text"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('label,text\ny,"quoted start\nx,other"\nx,z\ny,f\n', 2),
        ('text,label\nz,x\n"quoted start,y\nother",x\nf,y\n', 3),
        ('id,text,label\n1,z,x\n2,"start,x\n3,other",y\n', 3),
        ('label,text\ny,"Dear Ann\nthanks, Bob"\nx,z\n', None),
        ('text,label\n"Dear Ann, x\nthanks",x\n', None),
        ('text,label\n"Dear Ann,\nthanks",x\nb,\n', None),
        ('label,text\ny,"x\ny"\nx,z\n', None),
    ],
)
def test_two_joined_rows_are_named_if_other_rows_have_a_cell_of_the_second(text, line, caplog):
    read(text)
    assert len(caplog.records) == bool(line)
    assert not line or f"rows:{line}: one cell spans 2 lines that look like rows" in caplog.text


@pytest.mark.parametrize(
    ("rows", "is_named"),
    [("'a'|'x'\n`b`|“y”\n", True), ("'a b'| 'x' \n", True), ("'a'|x\n'|'\nit's|'y\n", False)],
)
def test_other_quotes_around_all_cells_of_a_row_are_named_once(rows, is_named, caplog):
    assert read(f"text|label\n{rows}") == rows.splitlines()
    assert caplog.text.count("rows:2: ' is read as text: quotes around a cell must be \"") == is_named


@pytest.mark.parametrize("again", ["text|label", '"text"|label', " Text|LABEL\u200b", "\ufefftext|label"])
@pytest.mark.parametrize("delimiter", [",", "\t", ";"])
def test_a_header_in_the_middle_is_a_bad_row(again, delimiter):
    found = read(f"text|label\n{ROWS}{again}\n{ROWS}", delimiter)
    assert found.pop(7) == "rows:9: repeats the header: is the file made of several?"
    assert found == ROWS.splitlines() * 2


def test_a_header_in_another_order_ends_the_table():
    with pytest.raises(errors.UserError, match="^rows:3: repeats the header with the columns in another order"):
        read("text|label\na|x\nlabel|text\ny|b\n")
    assert read("text\na\ntext\n") == ["a", "text"], "in a single column it may be a text"


@pytest.mark.parametrize("header", ["text, text", "text,text\u200b", "a,b,a"])
def test_names_that_look_the_same_are_refused(header):
    with pytest.raises(errors.UserError, match="rows:1: the header has '(text|a)' more than once"):
        read(f"{header}\n")
