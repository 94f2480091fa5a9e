"""Rows are read or refused with file and line; examples and tasks are made of them."""

import csv
import io
import json
import re
import tracemalloc

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from knnprompt_jax.common import errors, text_tables
from knnprompt_jax.tasks import columns
from knnprompt_jax.tasks.table_file import Table
from knnprompt_jax.tasks.task import Task

TASK = Task("mood", ("sentence",), "{sentence}\nMood:", ("0", "1"), ("bad", "good"))
PAIR = Task("pair", ("first", "second"), "{first} {second}:", ("0", "1"), ("no", "yes"))
AWKWARD = ['a, "b"\nc', "d\r\ne", "\u2028", "\u05e9\u05dc\u05d5\u05dd", " x ", "NA", "", "007", "=1+1", "'"]
AWKWARD += ["\U0001f600", "\t", 'a"";,\n\r', ' \t"', "nul\0byte"]


def write(folder, content, name="rows.csv", encoding="utf-8"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
    return str(path)


def read(path, **options):
    return [row for _, row in Table(path, **options).rows()]


def refusal(read, *arguments, **options):
    with pytest.raises(errors.UserError) as caught:
        read(*arguments, **options)
    return str(caught.value)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize(("name", "delimiter"), [("rows.csv", ","), ("rows.TSV", "\t"), ("rows.csv", "|")])
def test_cells_are_those_that_were_written(tmp_path, name, delimiter, encoding, end):
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator=end)
    writer.writerows([["text", "label"], *([cell, "x"] for cell in AWKWARD)])
    path = write(tmp_path, text.getvalue(), name, encoding)
    expected = [{"text": cell, "label": "x"} for cell in AWKWARD]
    assert read(path, encoding=encoding.removesuffix("-sig")) == expected
    if encoding in ("utf-8-sig", "utf-16"):  # The mark decides, whatever encoding is given.
        assert read(path, encoding="cp1252") == expected


@settings(max_examples=50, deadline=None)
@given(content=st.text(alphabet=st.sampled_from('ab,"\n\r \t\u00e9\u2028{}[]:1'), max_size=40))
def test_any_file_is_read_or_refused_in_one_line(tmp_path_factory, content):
    for name in ("rows.csv", "rows.jsonl"):
        path = write(tmp_path_factory.mktemp("any"), content, name)
        try:
            assert all(place.startswith(f"{path}:") for place, _ in Table(path).rows())
        except errors.UserError as error:
            assert path in str(error)


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("rows.csv", 'text,label\n"a\nb",x\nc,x,y\n', {}, "rows.csv:4: not CSV .*: 3 cells, but the header has 2"),
        ("rows.csv", 'text,label\n"open,x\nb,y\n"c",z\n', {}, "rows.csv:2: not CSV .*: ',' expected after '\"'"),
        ("rows.csv", "sep=;\ntext;label\n", {}, "rows.csv:1: not CSV .* ';': remove this line, 'sep='"),
        ("rows.csv", "a,b;c\nd,e;f\n", {}, "rows.csv: cannot tell what separates its cells: give --delimiter="),
        ("rows.csv", "text\n" + "a\n" * 9999 + "grün\n", {"encoding": "cp1252"}, "rows.csv:10001: not CP1252"),
        ("rows.jsonl", '{"text": 1}\n\n{"text": \n', {}, "rows.jsonl:3: not a JSON object: Expecting value"),
        ("rows.jsonl", '{"label": 1, "text": "a", "label": 2}', {}, "rows.jsonl:1: .* one column is named 'label'"),
        ("rows.parquet", "PAR1 or so", {}, "rows.parquet: not readable as Parquet"),
        ("rows.doc", "a", {}, "rows.doc: of kind 'doc'; choose csv, tsv"),
        ("rows.txt", "a text".encode("utf-16-le"), {}, "rows.txt:1: not UTF-8: .* utf-16-le"),
        ("rows.csv", b"text,label\na,x\ncaf\xe9,x\n", {}, "rows.csv:3: not UTF-8: .* --encoding="),
        ("rows.csv", "\ufefftext\ncafé\n".encode() + b"\xe9", {"encoding": "cp1252"}, "rows.csv:3: not UTF-8-SIG"),
        ("rows.csv", "text\n", {"encoding": "klingon"}, "--encoding=klingon: unknown encoding"),
    ],
)
def test_malformed_files_are_refused_with_their_line(tmp_path, name, content, options, message):
    assert re.search(message, refusal(read, write(tmp_path, content, name), **options))


@pytest.mark.parametrize(
    ("content", "options", "rows"),
    [
        ("id;text (short, plain);label\n0;a;x\n1;b, c;y\n", {}, [("0", "a", "x"), ("1", "b, c", "y")]),
        ('a,b;c\nd,"e";f\n', {"delimiter": ";"}, [('d,"e"', "f")]),
        ("a\tb\nc,c\td\n", {"delimiter": "tab"}, [("c,c", "d")]),
        ('text\n"a, b"\n', {}, [("a, b",)]),
        ("text|label\na, b; c|x\n", {}, [("a, b; c", "x")]),
        (",text, ,label\n0,a,,x\n,,,\n\n1,b,,y\n", {}, [("a", "x"), ("b", "y")]),
        ('\ufeff\ufeff"text",label\na,x\n', {}, [("a", "x")]),
    ],
)
def test_the_delimiter_splits_the_header_and_the_first_records_alike(tmp_path, content, options, rows):
    assert [tuple(row.values()) for row in read(write(tmp_path, content), **options)] == rows


def test_rows_are_read_one_at_a_time_and_may_hold_a_megabyte(tmp_path):
    path = write(tmp_path, "text,label\n" + f"{'a' * 1000},x\n" * 3000)
    tracemalloc.start()
    assert sum(1 for _ in Table(path).rows()) == 3000
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()
    assert read(write(tmp_path, f"text\n{'a' * 2**20}\n")) == [{"text": "a" * 2**20}]


@pytest.mark.parametrize("name", [None, "row no"])
def test_the_index_of_pandas_is_no_column(tmp_path, name):
    table = pd.DataFrame({"text": ["a", "b"], "label": ["x", "y"]}, index=pd.Index(["row one", "row two"], name=name))
    table.to_parquet(tmp_path / "rows.parquet")
    assert read(str(tmp_path / "rows.parquet")) == table.to_dict("records")
    arrow = pa.Table.from_pandas(table)
    assert columns.as_list("X", arrow if name else arrow.replace_schema_metadata()) == table.to_dict("records")


def test_parquet_that_python_cannot_read(tmp_path):
    path = str(tmp_path / "rows.parquet")
    parquet.write_table(pa.table({"text": pa.array(["a"]), "day": pa.array([3_000_000], pa.date32())}), path)
    assert "rows.parquet: not readable as Parquet" in refusal(read, path)
    parquet.write_table(pa.Table.from_arrays([pa.array(["a"])] * 2, ["text", "text"]), path)
    assert "rows.parquet: not readable as Parquet: more than one column is named 'text'" in refusal(read, path)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"label": "0"}, "the text 'sentence' is missing; the columns are label; name the text columns with --text_"),
        ({"sentence": 3.5, "label": "0"}, "the text 'sentence' is float"),
        ({"sentence": " \t", "label": "0"}, "no text in sentence; --on_bad=skip leaves such rows out"),
        ({"sentence": "#N/A", "label": "0"}, "'sentence' is an error or a formula of a spreadsheet: '#N/A'; --on_bad"),
        ({"sentence": "\ufeffLabel", "label": "sentence"}, "the header again; --on_bad=skip"),
        ({"sentence": "a\ud800", "label": "0"}, "'sentence' holds half a character"),
        ({"sentence": "a"}, "no label column 'label', only sentence: name it with --label_column="),
        ({"sentence": "a", "label": "nan "}, "the label is missing; --on_bad=skip"),
    ],
)
def test_bad_rows_are_refused_with_file_and_line_or_skipped(tmp_path, caplog, row, message):
    path = write(tmp_path, f'{{"sentence": "b ", "label": " 1 "}}\n{json.dumps(row)}\n', "rows.jsonl")
    assert f"{path}:2: {message}" in refusal(Table(path).labelled, TASK)
    if "--on_bad" in message:
        (example,) = Table(path, on_bad="skip").labelled(TASK)
        assert (example.fields, example.label, example.row) == ({"sentence": "b "}, "1", 0)
        assert f"1 rows without a text or a label are left out, the first at {path}:2" in caplog.text
    else:
        refusal(Table(path, on_bad="skip").labelled, TASK)


NO_VALUES = ["#n/a", "#NV", "#WERT!", "#¿NOMBRE?", "#Н/Д", "Err:502", "=A2", "='a b'!$A$2", '=IF(A2>1,"a","b")']
NO_VALUES += ["#NAMN?"]
NO_LABELS = ["['a', 'b']", "[0 1]", "('a', 'b')", '{"choices": ["a"]}', "a\u2028b", ["a"], 0.5, None]
NO_LABELS += ["########", "#ERR", "#N/A N/A", "Erreur :508", "+A1", "={1,2}", "{=A1}", "=TRUE", "\\N", "(null)"]
NO_LABELS += ["[object Object]"]
PLAIN = ["#1", "#WINNING", "#wow!", "=", "=)", "=odd", "[other]", "(none)", "{x}", "a, b", "N/A", "C++", "#YES!"]
PLAIN += ["#Value!", "+1", "A1", "+ Pos"]


def test_a_label_is_one_plain_value_and_a_text_no_error_of_a_spreadsheet():
    for cell in [*NO_VALUES, *NO_LABELS]:
        pytest.raises(errors.EmptyCell, columns.label_string, "", cell)
    for cell in NO_VALUES:
        pytest.raises(errors.EmptyCell, columns.text_cells, "", {"text": cell}, {"text": "text"})
    for cell in PLAIN:
        assert (columns.label_string("", cell), TASK.fields_of("", {"sentence": cell})) == (cell, {"sentence": cell})


def test_rows_of_no_table(tmp_path):
    path = write(tmp_path, "sentence,label\n")
    assert refusal(Table(path).labelled, TASK).endswith("rows.csv: no rows with a text and a label")
    assert refusal(Table(path).infer).endswith("rows.csv: no rows")


def test_columns_can_have_any_name(tmp_path):
    path = write(tmp_path, "team,no,body,label\n1,A-7,a b,x\n0,A-8,c,y\n")
    first, _ = Table(path, "team", ("body",)).labelled(TASK)
    assert (first.label, first.fields, first.extra) == ("1", {"sentence": "a b"}, {"no": "A-7", "label": "x"})
    first, _ = Table(path, text_columns=("body",)).unlabelled(TASK)
    assert first.extra == {"team": "1", "no": "A-7", "body": "a b", "label": "x"} and first.label == ""
    task, _ = Table(path, "team").infer()
    assert task.template == "Body: {body}\nLabel: {label}\nTeam, in one word:"
    assert Table(path, "team", ("label",)).infer()[0].fields == ("label",)
    assert "rows.csv:2: no label column 'kind', only team, no, body, label" in refusal(Table(path, "kind").infer)
    assert "--text_columns=a,b: give a column for each of" in refusal(Table(path, "team", ("a", "b")).labelled, TASK)


def test_a_table_goes_round(tmp_path, caplog):
    """Labels in `suggested` win, rows without a label wait, added columns are no texts, apostrophes go."""
    texts = ["=1+1", "'-x", "two\nlines", "-1", "plain", "new"]
    rows = [["text", "label", "note", "suggested", "probability", "novelty", "reason", "checked"]]
    labels = [("a", ""), ("b", "@a"), ("@a", ""), ("b", ""), ("b", ""), ("", "")]
    rows += [
        [text, label, "words", new, "0.5", "0.1", "why not", "" if new else "x"]
        for text, (label, new) in zip(texts, labels, strict=True)
    ]
    path = write(tmp_path, text_tables.to_csv(rows))
    task, found = Table(path, encoding="cp1252").infer()
    assert task.fields == ("text", "note") and task.labels == ("@a", "a", "b")
    assert [row.fields["text"] for row in found] == texts[:5]
    assert [row.label for row in found] == ["a", "@a", "@a", "b", "b"]
    assert found[0].extra["checked"] == "x" and found[0].extra["reason"] == "why not"
    assert f"{path}: 1 rows without a text or a label are left out, the first at {path}:8" in caplog.text


@pytest.mark.parametrize(("typed", "column"), [("bb,", "checked"), ("a,x", "checked"), ("a,", "own")])
def test_a_suggestion_is_a_label_of_the_table_and_of_a_row_that_is_not_checked(tmp_path, typed, column):
    """An x that belongs into `checked`, or a misspelt label, makes no new class; nor does another tool's column."""
    path = write(tmp_path, f"text,label,suggested,{column}\none,a,,\ntwo,b,{typed}\n")
    assert f"rows.csv:3: 'suggested' is {typed.split(',')[0]!r}: give a label that is" in refusal(Table(path).infer)


@pytest.mark.parametrize(
    ("column", "cells", "count"),
    [
        ("answer", ["", " Reject", "IGNORED"], 2),
        ("Status", ["Accepted ", "Discarded", "pending"], 1),
        ("qa", ["approved", "disapproved", "Approved"], 1),
        ("Rejected?", [False, True, "yes"], 2),
        ("was_cancelled", ["0", "1", "0"], 1),
        ("is_valid", ["TRUE", "FALSE", ""], 1),
        ("accepted", ["yes", "no", "No"], 2),
        ("status", ["open", "rejected", "IGNORED"], 0),
        ("answer", ["yes", "reject", "the queen"], 0),
        ("deleted", ["2026-01-02", "", "no"], 0),
        ("note", ["accept", "reject", "ignore", *(f"text {n}" for n in range(5))], 0),
    ],
)
def test_rejected_rows_of_a_labelling_tool_are_counted(tmp_path, caplog, column, cells, count):
    """A ticket's status is no verdict of a labelling tool, nor is an answer or a column of texts."""
    rows = [{"text": f"a\ufffd {n}", "label": "x", column: cell} for n, cell in enumerate(cells)]
    path = write(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "rows.jsonl")
    Table(path, text_columns=("text",)).infer()
    expected = [f"the column {column!r} rejects {count} rows"] if count else []
    found = [record.message for record in caplog.records]
    assert [message.split(": ")[1] for message in found[:-1]] == expected
    assert f"{len(cells)} texts hold the character U+FFFD" in found[-1]
