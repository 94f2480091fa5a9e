"""Rows of every format come one at a time, bad ones in their place."""

import dataclasses
import io
import sys

import pytest

from knnprompt_jax import errors
from knnprompt_jax.commands import unlabelled
from knnprompt_jax.tasks.task import Task

ONE = Task("mood", ("sentence",), "{sentence}\nMood:", ("bad", "good"), ("bad", "good"))
TWO = Task("pairs", ("first", "second"), "{first} {second}:", ("0", "1"), ("no", "yes"))
CONTENTS = {
    "csv": '\ufeffid,sentence\r\n1,"a, b"\r\n\r\n2,"two\nlines"\n3,nul\0byte\n',
    "tsv": 'id\tsentence\n1\ta, b\n2\t"two\nlines"\n3\tnul\0byte\n',
    "jsonl": '{"sentence": "a, b"}\n\n{"sentence": "two\\nlines"}\n{"sentence": "nul\\u0000byte"}\n',
    "txt": "a, b\r\n\n \ntwo\rlines\n",
}


def texts(task, *arguments, **options):
    found = unlabelled.read(task, *arguments, **options)
    return [str(one) if isinstance(one, errors.UserError) else " | ".join(one.fields.values()) for one in found]


@pytest.mark.parametrize("kind", CONTENTS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_formats(tmp_path, monkeypatch, kind, encoding):
    path = tmp_path / f"rows.{kind}"
    path.write_bytes(CONTENTS[kind].encode(encoding))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(path.read_bytes()))))
    expected = ["a, b", "two", "lines"] if kind == "txt" else ["a, b", "two\nlines", "nul\0byte"]
    assert texts(ONE, str(path), encoding=encoding) == texts(ONE, "-", kind, encoding) == expected


@pytest.mark.parametrize(
    ("kind", "task", "content", "message"),
    [
        ("csv", ONE, "text,x\na,1\n", "has no column 'sentence'; it has text, x"),
        ("txt", TWO, "one\n", "has no column 'first'; it has text"),
        ("csv", ONE, "\n", "it is empty; a header with the columns' names is needed"),
    ],
)
def test_a_missing_column_is_an_error_and_not_a_bad_row(tmp_path, kind, task, content, message):
    path = tmp_path / f"rows.{kind}"
    path.write_text(content)
    with pytest.raises(errors.UserError, match=f"rows.{kind}: {message}"):
        texts(task, str(path), on_bad="skip")


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("csv", "sentence,x\na,1\nb\nc,2\n", "3: 1 cell, but the header has 2"),
        ("csv", "sentence,x\na,1\n  ,1\nc,2\n", "3: field 'sentence' is empty; --on_bad=skip leaves such rows out"),
        ("jsonl", '{"sentence": "a"}\n{"sentence": \n{"sentence": "c"}\n', "2: not JSON:"),
        ("jsonl", '{"sentence": "a"}\n{"sentence": "b\\ud800"}\n{"sentence": "c"}\n', "2: field 'sentence' holds half"),
    ],
)
def test_skipped_bad_rows_are_logged_with_their_line(tmp_path, caplog, kind, content, message):
    path = tmp_path / f"rows.{kind}"
    path.write_text(content)
    first, bad, last = texts(ONE, str(path))
    assert bad.startswith(f"{path}:{message}") and (first, last) == ("a", "c")
    assert [row.row for row in unlabelled.read(ONE, str(path), on_bad="skip")] == [0, 2]
    assert f"left out: {bad.partition(';')[0]}" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere.csv",), "nowhere.csv: cannot read the file: No such file"),
        (("/",), "/: Is a directory"),
        (("rows.doc",), "rows.doc: set --format= to one of csv, tsv, jsonl, txt, parquet"),
        (("-",), "--format=: for standard input, choose from csv, tsv, jsonl, txt$"),
        (("-", "txt"), "standard input, after row 1: not UTF-8"),
        (("-", "txt", "klingon"), "encoding='klingon': unknown"),
    ],
)
def test_unreadable_inputs(monkeypatch, arguments, message):
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(b"good\n" + b"x" * 9000 + b"\n\xff\n")))
    )
    with pytest.raises(errors.UserError, match=message):
        list(unlabelled.read(ONE, *arguments))


@pytest.mark.parametrize(
    ("task", "text", "expected"),
    [
        (ONE, "a, b", {"sentence": "a, b"}),
        (ONE, " ", "--text: field 'sentence' is empty"),
        (TWO, '{"first": "a", "second": "b", "x": 1}', {"first": "a", "second": "b"}),
        (TWO, '{"first": "a"}', "--text: field 'second' is empty"),
        (dataclasses.replace(TWO, empty="allow"), '{"first": "a"}', {"first": "a", "second": ""}),
        (TWO, '{"First": "a", "second": "b"}', "--text: no field 'First'; choose from first, second"),
        (TWO, "a", "--text: give the fields first, second as JSON: --text="),
    ],
)
def test_the_text_of_the_command_line_becomes_fields(task, text, expected):
    if isinstance(expected, dict):
        assert unlabelled.parse_text(task, text) == expected
    else:
        with pytest.raises(errors.UserError, match=expected):
            unlabelled.parse_text(task, text)
