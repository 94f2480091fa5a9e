"""Rows of every format come one at a time, bad ones in their place, and go on after a mark."""

import io
import sys

import pytest

from knnprompt_jax import errors
from knnprompt_jax.prediction import rows
from knnprompt_jax.tasks.task import Task

ONE = Task("mood", ("sentence",), "{sentence}\nMood:", ("bad", "good"), ("bad", "good"))
TWO = Task("pairs", ("first", "second"), "{first} {second}:", ("0", "1"), ("no", "yes"))
LONG = "word " * 200_000

CONTENTS = {
    "csv": f'\ufeffid,sentence\r\n1,"a, b"\r\n\r\n2,"two\nlines"\n3,nul\0byte\n4,{LONG}\n',
    "tsv": f'id\tsentence\n1\ta, b\n2\t"two\nlines"\n3\tnul\0byte\n4\t{LONG}\n',
    "jsonl": f'{{"sentence": "a, b"}}\n\n{{"sentence": "two\\nlines"}}\n{{"sentence": "nul\\u0000byte"}}\n{{"sentence": "{LONG}"}}',
}
TEXTS = ["a, b", "two\nlines", "nul\0byte", LONG]


def texts(task, *arguments, **options):
    found = [row.example for row in rows.read(task, *arguments, **options)]
    return [str(one) if isinstance(one, errors.UserError) else " | ".join(one.fields.values()) for one in found]


@pytest.mark.parametrize("kind", CONTENTS)
@pytest.mark.parametrize("standard_input", [False, True])
def test_formats(tmp_path, monkeypatch, kind, standard_input):
    path = tmp_path / ("rows" if standard_input else f"rows.{kind}")
    path.write_text(CONTENTS[kind], encoding="utf-8", newline="")
    if standard_input:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    assert texts(ONE, *(("-", kind) if standard_input else (str(path),))) == TEXTS


def test_lines_of_text_are_the_only_field(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_bytes("one, \r\n\n \nzwei ö\n".encode("latin-1"))
    assert texts(ONE, str(path), encoding="latin-1") == ["one, ", "zwei ö"]


@pytest.mark.parametrize(
    ("kind", "task", "content", "message"),
    [
        ("csv", ONE, "text,x\na,1\n", "has no column 'sentence'; it has text, x"),
        ("tsv", TWO, "first\tx\na\t1\n", "has no column 'second'; it has first, x"),
        ("txt", TWO, "one\n", "has no column 'first'; it has text"),
        ("csv", ONE, "\n", "it is empty; a header with the columns' names is needed"),
    ],
)
def test_what_would_make_every_row_bad_is_an_error(tmp_path, kind, task, content, message):
    path = tmp_path / f"rows.{kind}"
    path.write_text(content)
    with pytest.raises(errors.UserError, match=f"rows.{kind}: {message}"):
        texts(task, str(path))


BAD = [
    ("csv", "sentence,x\na,1\nb\nc,2\n", "3: the number of cells differs from the header's 2: 1"),
    ("csv", "sentence,x\na,1\n  ,1\nc,2\n", "3: field 'sentence' is empty"),
    ("jsonl", '{"sentence": "a"}\n{"sentence": \n{"sentence": "c"}\n', "2: not JSON:"),
    ("jsonl", '{"sentence": "a"}\n["b"]\n{"sentence": "c"}\n', "2: a JSON list, not an object"),
    (
        "jsonl",
        '{"sentence": "a"}\n{"sentence": "b\\ud800"}\n{"sentence": "c"}\n',
        "2: field 'sentence' holds half a char",
    ),
]


@pytest.mark.parametrize(("kind", "content", "message"), BAD)
def test_bad_rows_are_named_and_passed(tmp_path, kind, content, message):
    path = tmp_path / f"rows.{kind}"
    path.write_text(content)
    first, bad, last = texts(ONE, str(path))
    assert bad.startswith(f"{path}:{message}") and (first, last) == ("a", "c")


@pytest.mark.parametrize("kind", CONTENTS)
def test_reading_goes_on_after_a_mark(tmp_path, kind):
    path = tmp_path / f"rows.{kind}"
    path.write_text(CONTENTS[kind].replace("two", "  "), encoding="utf-8", newline="")
    whole = list(rows.read(ONE, str(path)))
    for count, row in enumerate(whole, start=1):
        assert row.mark.rows == count
        assert list(rows.read(ONE, str(path), after=row.mark)) == whole[count:]
    path.write_text(path.read_text(encoding="utf-8").replace("a, b", "a, c"), encoding="utf-8", newline="")
    for after in (whole[0].mark, whole[2].mark, whole[-1].mark, rows.Mark(9, "")):
        with pytest.raises(errors.UserError, match=f"its first {after.rows} rows are not those that were labelled"):
            list(rows.read(ONE, str(path), after=after))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere.csv",), "nowhere.csv: cannot read the file: No such file"),
        (("rows.doc",), "rows.doc: --format=doc: choose from csv, tsv, jsonl, txt, parquet"),
        (("rows.csv", "yaml"), "--format=yaml: choose from csv, tsv, jsonl, txt, parquet"),
        (("-",), "--format=: for standard input, choose from csv, tsv, jsonl, txt$"),
        (("-", "txt"), "standard input, after row 1: not UTF-8"),
        (("-", "txt", "klingon"), "encoding='klingon': unknown"),
    ],
)
def test_unreadable_inputs(monkeypatch, arguments, message):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"good\n" + b"x" * 9000 + b"\n\xff\n")))
    with pytest.raises(errors.UserError, match=message):
        list(rows.read(ONE, *arguments))
