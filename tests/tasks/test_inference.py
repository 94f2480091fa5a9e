"""Tasks inferred from their rows."""

import enum
import types

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from knnprompt_jax.common import errors
from knnprompt_jax.tasks import columns
from knnprompt_jax.tasks.task import Example, Task

COLUMNS = {"id": [3, 1, 2], "title": ["a", "b", "c"], "body text": ["d", "e", "f"], "note": ["x", None, "y"]}
TABLE = pd.DataFrame({**COLUMNS, "label": ["not_good", "good", "good"]})
EXPECTED = Task(
    name="own",
    fields=("title", "body text", "note"),
    template="Title: {title}\nBody text: {body text}\nNote: {note}\nLabel, in one word:",
    labels=("good", "not_good"),
    label_words=("good", "not good"),
)


@pytest.mark.parametrize(
    "given",
    [(TABLE,), (TABLE.to_dict("records"),), (TABLE.drop(columns="label"), TABLE["label"])],
    ids=["table", "rows", "y"],
)
def test_columns_of_texts_are_fields(given):
    assert Task.infer(*given) == EXPECTED


@pytest.mark.parametrize(
    ("cell", "count", "fields"), [(404, 1, ("text", "note")), (404, 2, ("note",)), (None, 5, ("text", "note"))]
)
def test_a_column_of_texts_holds_a_text_in_nine_of_ten_rows(cell, count, fields):
    rows = [{"text": f"word {index}" if index >= count else cell, "note": "words"} for index in range(10)]
    assert Task.infer(rows, list("ab" * 5)).fields == fields


def polars_table(rows):
    """Return the part of a polars table's interface by which it differs from a pandas table."""
    return types.SimpleNamespace(columns=list(rows[0]), to_dict=lambda *, as_series: None, to_dicts=lambda: rows)


@pytest.mark.parametrize("make", [polars_table, pa.Table.from_pylist, pd.DataFrame, list])
def test_tables_of_other_libraries(make):
    rows = [{"title": "a", "body": "b c"}, {"title": "d", "body": "e f"}]
    y = ["x", "y"] if make is list else pa.chunked_array([["x"], ["y"]])
    task = Task.infer(make(rows), y)
    assert (task.fields, task.labels) == (("title", "body"), ("x", "y"))
    assert columns.rows_of(make(rows), task.fields) == rows
    assert columns.rows_of(pa.array(["b", "c"]), ("text",)) == [{"text": "b"}, {"text": "c"}]


WORDS = enum.Enum("WORDS", {"ONE": "one word", "TWO": "two words"}, type=str)  # Its `str` is not the text.


@pytest.mark.parametrize(
    ("y", "labels"),
    [
        ([10.0, 9], ("9", "10")),
        (np.array([True, False]), ("False", "True")),
        (["10", " x\n"], ("10", "x")),
        (WORDS, ("one word", "two words")),
        (["x_y", "x y"], ("x y", "x_y")),
    ],
)
def test_labels_are_ordered_as_numbers_and_then_as_texts(y, labels):
    task = Task.infer(["a", "b"], y, label="kind", name="mood")
    assert (task.name, task.fields, task.labels) == ("mood", ("text",), labels)
    assert task.template == "Text: {text}\nKind, in one word:" and task.label_words == labels


def test_columns_and_template_can_be_chosen():
    task = Task.infer(TABLE, fields=["title"], template="{title} is")
    assert (task.fields, task.template) == (("title",), "{title} is")
    assert Task.infer([{"text": "a", "kind": "x"}, {"text": "b", "kind": "y"}], label="kind").labels == ("x", "y")


@pytest.mark.parametrize(
    ("column", "values", "is_text"),
    [
        ("id", ["a", "MAY"], False),
        ("ticket", ["T-1", "T-2"], False),
        ("date", ["2026-01-02", "2026-01-02"], False),
        ("received", ["Mon, 9 Sep 2002 09:55:55 -0400 (EDT)", "Thursday, 3rd June 2021, 9 pm UT"], False),
        ("note", ["we met on May 5", "2 May 2024"], True),
        ("empty", ["", " "], False),
        ("id", ["a", "b c"], True),
    ],
)
def test_columns_of_ids_numbers_or_dates_are_not_fields(column, values, is_text):
    rows = [{column: value, "body": "x y", "label": label} for value, label in zip(values, "pq", strict=True)]
    assert Task.infer(rows).fields == ((column, "body") if is_text else ("body",))
    assert Task.infer([{column: row[column], "label": row["label"]} for row in rows]).fields == (column,)


@pytest.mark.parametrize(
    ("template", "title", "prompt"),
    [
        ("", "a", "Title: a\nBody: b\nLabel, in one word:"),
        ("Read:\n{title} {body}\nLabel:", "", "Read:\n b\nLabel:"),
        ("{{\n}}\n{body}\n{title} is", "", "{\n}\nb\n is"),
    ],
)
def test_lines_of_empty_fields_are_dropped_except_the_last(template, title, prompt):
    for empty in ("", " \t", None, float("nan"), pd.NA, pd.NaT, np.float32("nan")):
        rows = [{"title": title or empty, "body": "b"}, {"title": "c", "body": "d"}]
        task = Task.infer(rows, ["x", "y"], template=template)
        assert task.render(Example(task.fields_of("", rows[0]), "")) == prompt


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((["a", 3], ["x", "y"]), "no column with a name holds texts in nine of ten rows, only text"),
        (([{"text": "a", "label": "x", "LABEL ": "y"}],), "columns label, LABEL : which has the labels"),
        (([{"text": "a", "label": "x"}, {"text": "b"}],), "row 1, 'label': the label is missing"),
        ((["a", "b"], [0.5, float("inf")]), "label 0.5 is a float: give each row one text or whole number"),
        (("a text", ["x"]), "X is a str"),
        ((["a"], ["x\ud83d"]), "label holds half a character"),
        ((["a", "b"], []), "X has 2 rows, y 0 labels: each row needs one"),
        ((pd.DataFrame({"t": ["a", "b"], "team": ["x", "y"]}), ["x", "y"]), "column 'team' holds the labels: leave"),
    ],
)
def test_rows_without_texts_or_labels_are_refused(given, message):
    with pytest.raises(errors.UserError, match=message):
        Task.infer(*given)
