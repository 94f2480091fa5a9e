"""Rows from files are those of pandas, whatever their cells hold; errors name file and line."""

import codecs
import csv
import io
import os
import pathlib
import re
import tracemalloc

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from knnprompt_jax import errors
from knnprompt_jax.tasks import formats

AWKWARD = ['a, "b"\nc', "d\r\ne", "\u2028", "\u05e9\u05dc\u05d5\u05dd", " x ", "NA", "", "007", "=1+1", "'"]
AWKWARD += ["\U0001f600", "\t", 'a"";,\n\r', ' \t"']


def pandas_rows(content: bytes, sep: str = ",", encoding: str = "utf-8") -> list[dict[str, str]]:
    options = {"dtype": str, "keep_default_na": False, "na_values": [], "index_col": False}
    return pd.read_csv(io.BytesIO(content), sep=sep, encoding=encoding, **options).to_dict("records")


def read(path, encoding="utf-8"):
    return [row for _, row in formats.read(path, encoding)]


def refusal(path, encoding="utf-8"):
    with pytest.raises(errors.UserError) as caught:
        read(path, encoding)
    return str(caught.value)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize(("name", "delimiter"), [("rows.csv", ","), ("rows.TSV", "\t")])
def test_cells_are_those_of_pandas(tmp_path, name, delimiter, encoding, end):
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator=end)
    writer.writerows([["text", "label"], *([cell, "x"] for cell in AWKWARD)])
    path = tmp_path / name
    path.write_bytes(text.getvalue().encode(encoding))
    given = encoding.removesuffix("-sig")
    expected = [{"text": cell, "label": "x"} for cell in AWKWARD]
    assert read(path, given) == pandas_rows(path.read_bytes(), delimiter, given) == expected
    if encoding != "utf-8":  # The byte order mark decides, whatever encoding is given.
        assert read(path, "latin-1") == expected


@pytest.mark.parametrize(
    ("content", "encoding", "message"),
    [
        (b"text,label\na,x\ncaf\xe9,x\n", "utf-8", "csv:3: not UTF-8: byte 18 is 0xe9: invalid continuation"),
        (b"text,label\r\n" + b"\xc3\xa9" * 2**20 + b",x\r\n\xff,x", "utf-8", "csv:3: not UTF-8: byte 2097168 is 0xff"),
        (b"text,label\n", "utf-16", "csv:1: not UTF-16"),
        (b"\xef\xbb\xbftext,label\ncaf\xe9,x\n", "cp1252", "csv:2: not UTF-8: byte 17 is 0xe9: invalid continuation"),
        ("\ufefftext,label\na,x".encode("utf-16-le")[:-1], "utf-8", "csv:2: not UTF-16: byte 28 is 0x78: truncated"),
        ("\ufefftext,label\na,x".encode("utf-16-le")[:-1], "utf-16", "truncated data; its byte order mark names"),
        (b"text,label\n", "klingon", "encoding='klingon': unknown; choose utf-8"),
        (b"text,label\n", "utf-8\0", r"encoding='utf-8\x00': unknown; choose utf-8"),
    ],
)
def test_undecodable_bytes_are_refused_with_line_and_byte(tmp_path, content, encoding, message):
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    assert message in refusal(path, encoding)


def test_undecodable_bytes_of_a_pipe_are_refused_without_a_line():
    reader, writer = os.pipe()
    os.write(writer, b"text,label\na,x\ncaf\xe9,x\n")
    os.close(writer)
    path = pathlib.Path(f"/dev/fd/{reader}")
    with pytest.raises(errors.UserError, match=f"{path}: not UTF-8: invalid continuation byte; name the encoding"):
        list(formats.parse(path, kind=".csv"))
    os.close(reader)


@pytest.mark.parametrize(("delimiter", "name"), [(";", "rows.csv"), ("\t", "rows.csv"), (";", "rows.tsv")])
def test_other_delimiters_are_found_in_the_header(tmp_path, delimiter, name):
    path = tmp_path / name
    path.write_text('\n"text"|label\n"well, yes|\nno"|x\n'.replace("|", delimiter))
    assert list(formats.read(path)) == [(f"{path}:3", {"text": f"well, yes{delimiter}\nno", "label": "x"})]


@pytest.mark.parametrize(
    "header",
    [
        "sep=;\ntext;label",
        '\n\n"sep=;",,\ntext;label',
        "text;label;;",
        '"text";"label"',
        '"a\n, b, c";text;label',
        'a;"text\r\n in two lines";text;label',
    ],
)
def test_headers_from_spreadsheets(tmp_path, header):
    path, columns = tmp_path / "rows.csv", header.replace('"text\r\n', "").splitlines()[-1].split(";")
    cells = ";".join({"text": "well, yes", "label": "x"}.get(column.strip('"'), "") for column in columns)
    path.write_text(f"{header}\n{cells}\n{';' * cells.count(';')}\n", newline="")
    ((place, row),) = formats.read(path)
    assert (row["text"], row["label"]) == ("well, yes", "x") and "" not in row
    assert not any("\n" in column for column in row) and ("two lines" not in header or "text in two lines" in row)
    assert place == f"{path}:{len(header.splitlines()) + 1}"


@pytest.mark.parametrize(
    ("name", "header", "columns"),
    [
        ("rows.tsv", "review (good; bad; ok)\ttext", ["review (good; bad; ok)", "text"]),
        ("rows.csv", "age (years; months; days),text", ["age (years; months; days)", "text"]),
        ("rows.csv", '5" disk,text', ['5" disk', "text"]),
        ("rows.csv", "sep=\t\na\ttext", ["a", "text"]),
    ],
)
def test_delimiters_within_quotes_are_ignored(tmp_path, name, header, columns):
    delimiter = "," if "," in header else "\t"
    (tmp_path / name).write_text(f"{header}\nx{delimiter}b;c;d\n")
    assert [row for _, row in formats.read(tmp_path / name)] == [dict(zip(columns, ["x", "b;c;d"], strict=True))]


def test_a_quote_that_is_never_closed_is_refused_soon(tmp_path):
    (tmp_path / "rows.csv").write_text('text,"label\n' + "a;b;c\n" * 200_000)
    assert "rows.csv:1: not CSV: unexpected end of data" in refusal(tmp_path / "rows.csv", "utf-8")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.txt", "a\n\ufeffb\n"),
        ("rows.csv", 'text\na\n\ufeff"b"\n'),
        ("rows.jsonl", '{"text": "a"}\n\ufeff{"text": "b"}'),
    ],
)
def test_byte_order_marks_of_appended_files_are_no_text(tmp_path, name, content):
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert read(tmp_path / name) == [{"text": "a"}, {"text": "b"}]


def test_the_header_of_an_appended_table_of_one_column_is_named(tmp_path, caplog):
    (tmp_path / "rows.csv").write_text("text\na\nText\n")
    assert read(tmp_path / "rows.csv") == [{"text": "a"}, {"text": "Text"}]
    assert "rows.csv:3: a text that is the header's name" in caplog.text


@pytest.mark.parametrize("mark", [codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE])
def test_byte_order_marks_of_utf_32_are_recognised(tmp_path, mark):
    order = {codecs.BOM_UTF32_LE: "le", codecs.BOM_UTF32_BE: "be"}[mark]
    (tmp_path / "rows.csv").write_bytes(mark + "text,label\ngrün,x\n".encode(f"utf-32-{order}"))
    assert [row["text"] for _, row in formats.read(tmp_path / "rows.csv")] == ["grün"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"day": pa.array([3_000_000], pa.date32())}, "rows.parquet: Python cannot represent a value after row 0"),
        (
            {"at": pa.array([1], pa.timestamp("s", "Nowhere/Land"))},
            "rows.parquet: Python cannot represent a value after row 0",
        ),
        (None, "rows.parquet: it has the column 'text' more than once"),
    ],
)
def test_parquet_that_python_cannot_read(tmp_path, columns, message):
    text, path = pa.array(["a"]), tmp_path / "rows.parquet"
    table = (
        pa.Table.from_arrays([text, text], ["text", "text"]) if columns is None else pa.table({"text": text, **columns})
    )
    parquet.write_table(table, path)
    assert message in refusal(path, "utf-8")


def test_the_place_of_a_row_is_its_first_line(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b'\n\r\ntext,label\n\n"a\nb\r\nc",x\n  \nd,y\n')
    assert list(formats.read(path)) == [
        (f"{path}:5", {"text": "a\nb\r\nc", "label": "x"}),
        (f"{path}:9", {"text": "d", "label": "y"}),
    ]


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl", "rows.parquet"])
def test_a_field_may_hold_a_megabyte_and_anything(tmp_path, name):
    text, path = "\u00e9, \"'\n\x00\t" * 2**17, tmp_path / name
    table = pd.DataFrame({"text": [text, "b"], "label": ["x", "y"]})
    write = {"rows.csv": table.to_csv, "rows.jsonl": table.to_json, "rows.parquet": table.to_parquet}[name]
    write(path, **({"orient": "records", "lines": True} if name == "rows.jsonl" else {"index": False}))
    assert read(path) == table.to_dict("records")


def test_rows_are_read_one_at_a_time(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("text,label\n" + f"{'a' * 1000},x\n" * 3000)
    tracemalloc.start()
    assert sum(1 for _ in formats.read(path)) == 3000
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.csv", 'text,label\n"a\nb",x\nc,x,y\n', "rows.csv:4: 3 cells, but the header has 2"),
        ("rows.csv", 'text,label\nd,x\n"a\n\n\n', "rows.csv:3: not CSV: unexpected end of data"),
        ("rows.csv", "", "rows.csv: it is empty; a header with the columns' names is needed"),
        ("rows.csv", "text,label,text\n", "rows.csv:1: the header has 'text' more than once: text, label, text"),
        ("rows.jsonl", '{"text": 1}\n\n{"text": \n', "rows.jsonl:3: not JSON"),
        ("rows.jsonl", "[" * 10**5, "rows.jsonl:1: not JSON"),
        ("rows.jsonl", '{"text": "a"}\n{"text": "b"}{"text": "c"}\n', "jsonl:2: not JSON: Extra data at character 14;"),
        ("rows.csv", "text,label\n“a, b”,x\n", "csv:2: 3 cells, but the header has 2; quotes around a cell must be"),
        (
            "rows.csv",
            "text,label\n'a, b',x\n",
            "csv:2: 3 cells, but the header has 2; quotes around a cell must be \", not '",
        ),
        ("rows.csv", "'text','label'\n'a','x'\n", "csv:1: quotes around a cell must be \": 'text', 'label'"),
        ("rows.jsonl", '"a"', "rows.jsonl:1: a JSON str, not an object"),
        ("rows.parquet", "PAR1 or so", "rows.parquet:1: not Parquet"),
        ("rows.doc", "a", "rows.doc: unknown kind of file; its name should end in .csv, .tsv, .jsonl, .txt, .parquet"),
        ("none.csv", None, "none.csv: cannot read the file: "),
    ],
)
def test_malformed_files_are_refused_with_their_line(tmp_path, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    assert message in refusal(path)


@settings(max_examples=50, deadline=None)
@given(content=st.text(alphabet=st.sampled_from('ab,"\n\r \t\u00e9\u2028{}[]:1'), max_size=40))
@example(content='a,b\n"x""y" ,\n')
@example(content="a,b\n,\n \n\r\n1,2")
def test_any_file_is_read_as_by_pandas_or_refused_in_one_line(tmp_path_factory, content):
    # After a blank line that \r ends, pandas loses an empty first cell. It keeps a blank before a quote.
    assume(not re.search(r"(^|[\r\n])\r,|(^|[,\r\n])[ \t\u2028]+\"", content))
    found = {}
    for name in ("rows.csv", "rows.jsonl"):
        path = tmp_path_factory.mktemp("any") / name
        path.write_bytes(content.encode())
        try:
            found[name] = read(path)
        except errors.UserError as error:
            assert f"{path}:" in str(error)
    if rows := found.get("rows.csv"):
        named = set(rows[0])
        theirs = [
            {name: cell for name, cell in row.items() if name.strip() in named} for row in pandas_rows(content.encode())
        ]
        ours, theirs = ([tuple(row.values()) for row in each] for each in (rows, theirs))
        # We leave out rows of empty cells and columns without a name; in a single column, pandas passes over blank
        # lines.
        ours, theirs = ([cells for cells in each if "".join(cells).strip()] for each in (ours, theirs))
        assert ours == theirs


def test_an_endless_line_is_refused(monkeypatch):
    monkeypatch.setattr(formats, "_MAX_LINE", 1000)
    with pytest.raises(errors.UserError, match=r"^/dev/zero:1: the line has 1,000 characters or more"):
        list(formats.parse(pathlib.Path("/dev/zero"), kind=".csv"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04\x14\x00", "a spreadsheet or another archive: save it as CSV"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1", "a spreadsheet or document of Microsoft Office: save it as CSV"),
        (b"\x1f\x8b\x08\x00", "compressed by gzip: decompress it"),
        (b"PAR1\x15\x04", "Parquet: its name should end in .parquet"),
        (b"\n <!DOCTYPE html>\n<html>", "a page of HTML or XML, not a table"),
        (b"<HTML>\n", "a page of HTML or XML, not a table"),
        (b'[ {"text": "a"}]', "JSON: as JSON lines its name should end in .jsonl"),
        (b'{"text": "a"}\n', "JSON: as JSON lines its name should end in .jsonl"),
    ],
)
def test_files_of_another_kind_are_named(tmp_path, content, message):
    (tmp_path / "rows.csv").write_bytes(content)
    assert refusal(tmp_path / "rows.csv").endswith(f"rows.csv: it is {message}")


@pytest.mark.parametrize("num_ascii", [0, 300_007])
@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "l1", "8859", "mac_roman", "850", "koi8-r", "gbk", "ascii"])
def test_utf8_is_not_read_as_another_encoding(tmp_path, encoding, num_ascii):
    path = tmp_path / "rows.csv"
    path.write_bytes(("text\n" + "rows\n" * num_ascii + "K\u00fcndigung\n").encode())
    assert refusal(path, encoding) == f"{path}: UTF-8, not {encoding.upper()}: add --encoding=utf-8"


@pytest.mark.parametrize(
    ("encoding", "text"), [("cp1252", "K\u00fcndigung"), ("850", "\u00fc"), ("gbk", "\u4e00\u4e2a")]
)
def test_a_text_that_is_not_utf8_is_read_in_its_encoding(tmp_path, encoding, text):
    path = tmp_path / "rows.csv"
    path.write_bytes(f"text\n{text}\n".encode(encoding))
    assert read(path, encoding) == [{"text": text}]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl"])
def test_wide_characters_without_a_byte_order_mark(tmp_path, encoding, name):
    path = tmp_path / name
    path.write_bytes(("text\na\n" if name == "rows.csv" else '{"text": "a"}').encode(encoding))
    for other in ("utf-8", "cp1252"):
        assert refusal(path, other) == f"{path}: it looks like {encoding.upper()}: add --encoding={encoding}"
    assert read(path, encoding) == [{"text": "a"}]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.csv", ",text, ,label\n0,a,,x\n"),
        ("rows.jsonl", '{"": 0, "text": "a", "\u200b": null, "label": "x"}\n'),
    ],
)
def test_columns_without_a_name_are_left_out(tmp_path, name, content):
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert [row for _, row in formats.read(tmp_path / name)] == [{"text": "a", "label": "x"}]


@pytest.mark.parametrize(
    "row", ['{"text": "a", "label": "x", "text": "b"}', '{"text": "a", "label": {"x": 1, "x": 2}}']
)
def test_repeated_keys_are_a_bad_row(tmp_path, row):
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"text": "a"}}\n{row}\n{{"text": "c"}}\n')
    good, bad, last = (parsed for _, parsed in formats.parse(path))
    assert (good, last) == ({"text": "a"}, {"text": "c"})
    key = "text" if row.count("text") > 1 else "x"
    assert str(bad) == f"{path}:2: the key '{key}' occurs more than once"
