"""Tasks inferred from their rows."""

import decimal
import enum
import fractions

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from knnprompt_jax import errors
from knnprompt_jax.classifier import inputs
from knnprompt_jax.tasks.task import Task

COLUMNS = {"id": [3, 1, 2], "title": ["a", "b", "c"], "body text": ["d", "e", "f"], "note": ["x", None, "y"]}
TABLE = pd.DataFrame({**COLUMNS, "label": ["not_good", "good", "good"]})
EXPECTED = Task(
    name="own",
    fields=("title", "body text", "note"),
    template="Title: {title}\nBody text: {body text}\nNote: {note}\nLabel, in one word:",
    labels=("good", "not_good"),
    label_words=("good", "not good"),
    empty="allow",
)


@pytest.mark.parametrize(
    "given",
    [(TABLE,), (TABLE.to_dict("records"),), (TABLE.drop(columns="label"), TABLE["label"])],
    ids=["table", "rows", "y"],
)
def test_columns_of_texts_are_fields(given):
    assert Task.infer(*given) == EXPECTED


def test_a_column_with_a_few_other_cells_than_texts_is_a_field():
    rows = [{"text": f"word {index}", "product": "pen"} for index in range(9)] + [{"text": 404, "product": "pen"}]
    task = Task.infer(rows, list("ab" * 5))
    assert task.fields == ("text", "product")
    with pytest.raises(errors.UserError, match=r"row 9: field 'text' is not a text \(int\)"):
        inputs.labelled(task, rows, list("ab" * 5))


def test_a_column_with_many_other_cells_than_texts_is_no_field():
    rows = [{"text": f"word {index}", "answer": answer} for index, answer in enumerate(["yes", 3, "n/a", 4.5, "no"])]
    assert Task.infer(rows, list("abaab")).fields == ("text",)


def test_an_incomplete_column_is_a_field_only_if_no_other_is():
    rows = [{"title": "a", "text": "b"}, {"text": "c"}, {"title": "d", "text": "e"}]
    assert Task.infer(rows, list("xyx")).fields == ("text",)
    rows = [{"id": f"A{index}", **({"text": "b"} if index else {})} for index in range(20)][::-1]
    assert Task.infer(rows, list("xy" * 10)).fields == ("text",)


@pytest.mark.parametrize(
    ("label", "message"),
    [("bill\ud83d", "row 1: label .* holds half a character: U\\+D83D"), ("a\0", "row 1: label 'a.x00' ends in a NUL")],
)
def test_labels_that_no_array_or_file_holds_are_refused(label, message):
    with pytest.raises(errors.UserError, match=message):
        Task.infer(["a", "b"], ["x", label])


@pytest.mark.parametrize("lack", [{}, {"text": 5}, {"text": ["words"]}, {"text": b"words"}])
@pytest.mark.parametrize("bad", [{0}, {3, 7}, {1, 4, 8}])
def test_rows_without_a_text_do_not_hide_its_column(lack, bad):
    rows = [{**({"text": f"word {index}"} if index not in bad else lack), "n": index} for index in range(11)]
    task = Task.infer(rows, ["x", "y"] * 5 + ["x"])
    assert task.fields == ("text",)
    with pytest.raises(errors.UserError, match=f"row {min(bad)}: (lacks the field|field) 'text'"):
        inputs.labelled(task, rows, ["x", "y"] * 5 + ["x"])


def test_a_column_that_is_partly_texts_is_named(caplog):
    rows = [{"text": "words" if index % 5 else index, "note": f"words {index}"} for index in range(10)]
    assert Task.infer(rows, ["x", "y"] * 5).fields == ("note",)
    assert "column 'text' is left out, because only 80 % of the rows hold a text there" in caplog.text


@pytest.mark.parametrize("column", ["user.text", "Subject: line", "0", "a[0]", "what!", "a b", "\u200d"])
def test_a_column_may_have_any_name_without_braces(column):
    task = Task.infer([{column: "{words}"}], ["x"], label="{kind}")
    assert (
        task.render(inputs.queries(task, [{column: "{words}"}])[0])
        == f"{column[:1].upper()}{column[1:]}: {{words}}\n{{kind}}, in one word:"
    )


def test_a_column_with_braces_can_be_left_out():
    rows = [{"a{b}": "words", "note": "more words"}]
    with pytest.raises(
        errors.UserError, match="'a{b}', which has a brace: rename it or leave it out: --text_columns=note$"
    ):
        Task.infer(rows, ["x"])


@pytest.mark.parametrize(
    ("values", "labels", "classes"),
    [
        ([0.0, 1.0, 0], ("0", "1"), [0, 1]),
        (pd.Series([0, 1, None]).dropna(), ("0", "1"), [0, 1]),
        (np.array([2.0, -1.0], np.float32), ("-1", "2"), [-1, 2]),
        ([decimal.Decimal("3.00"), "x"], ("3", "x"), ["3", "x"]),
        ([fractions.Fraction(4, 2), 3], ("2", "3"), [2, 3]),
    ],
)
def test_whole_numbers_may_be_floats(values, labels, classes):
    task = Task.infer(["a"] * len(values), values)
    assert task.labels == labels and list(inputs.labels_like(task, values)) == classes


@pytest.mark.parametrize(
    "value", [0.5, float("inf"), 1e300, 2.0**54, decimal.Decimal("0.1"), 1j, b"x", np.timedelta64(1, "D")]
)
def test_other_numbers_are_no_labels(value):
    with pytest.raises(errors.UserError, match=r"row 0: label .* is a \w+, not a text or a whole number"):
        Task.infer(["a"], [value])


class PolarsTable:
    """The part of a polars table's interface by which it differs from a pandas table."""

    def __init__(self, rows):
        self.rows = rows
        self.columns = list(rows[0])

    def __iter__(self):
        return iter([[row[name] for row in self.rows] for name in self.columns])

    def to_dict(self, *, as_series=True):
        raise AssertionError("it holds columns")

    def to_dicts(self):
        return self.rows


@pytest.mark.parametrize("make", [PolarsTable, pa.Table.from_pylist, pd.DataFrame, list])
def test_tables_of_other_libraries(make):
    rows = [{"title": "a", "body": "b c"}, {"title": "d", "body": "e f"}]
    y = ["x", "y"] if make is list else pa.chunked_array([["x"], ["y"]])
    task = Task.infer(make(rows), y)
    assert (task.fields, task.labels) == (("title", "body"), ("x", "y"))
    assert [dict(example.fields) for example in inputs.labelled(task, make(rows), y)] == rows
    assert [example.fields["text"] for example in inputs.queries(Task.infer(["a"], ["x"]), pa.array(["b", "c"]))] == [
        "b",
        "c",
    ]


def test_tables_that_hold_no_rows_yet():
    lazy = type("LazyFrame", (), {"collect": None, "lazy": None})()
    with pytest.raises(errors.UserError, match=r"X is a LazyFrame: give X.collect\(\)"):
        Task.infer(lazy, ["x"])
    twice = pa.Table.from_arrays([pa.array(["a"])] * 2, ["text", "text"])
    with pytest.raises(errors.UserError, match="X has the column 'text' more than once"):
        Task.infer(twice, ["x"])


@pytest.mark.parametrize("cell", ["\u200b", " \ufeff ", "\u00a0", "\x00", None])
def test_what_nobody_sees_is_an_empty_cell(cell):
    with pytest.raises(errors.EmptyCell, match="row 1: the label is missing"):
        Task.infer(["a", "b"], ["x", cell])
    with pytest.raises(errors.EmptyCell, match="row 0: field 'text' is empty"):
        inputs.queries(Task.infer(["a"], ["x"]), [cell])


def test_labels_that_only_resemble_numbers():
    assert inputs.labels_like(Task.infer(["a", "b"], [2**62, -5]), [2**62, -5]) == (-5, 2**62)
    labels = ["--1", "9" * 5000, "2", "-3"]
    assert Task.infer(list("abcd"), labels).labels == ("-3", "2", "--1", "9" * 5000)
    assert inputs.labels_like(Task.infer(list("ab"), ["--1", "2"]), [1, 2]) == ("2", "--1")


def test_tables_with_equal_columns_and_rows_of_tables():
    twice = pd.DataFrame([["a", "b"], ["c", "d"]], columns=["text", "text"])
    with pytest.raises(errors.UserError, match="X has the column 'text' more than once"):
        Task.infer(twice, ["x", "y"])
    assert Task.infer([row for _, row in TABLE.iterrows()]) == EXPECTED


@pytest.mark.parametrize(
    ("texts", "y", "labels"),
    [
        (["a", "b"], [10, 9], ("9", "10")),
        (["a", "b", "c"], [1, -1, 0], ("-1", "0", "1")),
        (np.array(["a", "b"]), np.array([1, 0]), ("0", "1")),
        (pd.Series(["a", "b"]), np.array([True, False]), ("False", "True")),
        (["a", "b"], ["10", "x"], ("10", "x")),
    ],
)
def test_texts_alone(texts, y, labels):
    task = Task.infer(texts, y, label="kind", name="mood")
    assert (task.name, task.fields, task.labels) == ("mood", ("text",), labels)
    assert task.template == "Text: {text}\nKind, in one word:"


def test_columns_and_template_can_be_chosen():
    task = Task.infer(TABLE, fields=["title"], template="{title} is")
    assert (task.fields, task.template) == (("title",), "{title} is")
    assert Task.infer([{"text": "a", "kind": "x"}, {"text": "b", "kind": "y"}], label="kind").labels == ("x", "y")


WORDS = enum.Enum("WORDS", {"ONE": "one word", "TWO": "two words"}, type=str)  # Whose `str` is not the text.


def test_members_of_an_enumeration_are_their_texts():
    assert Task.infer(["a", "b"], WORDS).labels == ("one word", "two words")
    task = Task.infer([WORDS.ONE], ["x"])
    assert task.fields_of("", {"text": WORDS.ONE}) == {"text": "one word"}


@pytest.mark.parametrize(
    "written",
    [
        ("look_predicted", "look_why"),
        ("suggested", "checked", "neighbours", "same_text"),
        ("prediction", "label_probability"),
        ("input_label", "novelty"),
    ],
)
def test_columns_that_commands_write_are_no_texts(written):
    row = {"text": "a b", "label": "x", **dict.fromkeys(written, "some words")}
    assert Task.infer([row]).fields == ("text",)
    assert Task.infer([row], fields=[written[0]]).fields == (written[0],), "unless they are named"
    with pytest.raises(errors.UserError, match=rf"no column holds texts.*{written[0]} \(a result of this program\)"):
        Task.infer([{name: value for name, value in row.items() if name != "text"}])
    if len(written) > 2:
        assert Task.infer([{"text": "a b", "label": "x", written[0]: "some words"}]).fields == ("text", written[0])


@pytest.mark.parametrize(
    ("column", "values", "is_text"),
    [
        ("id", ["a", "MAY"], False),
        ("ticket", ["T-1", "T-2"], False),
        ("date", ["2026-01-02", "2026-01-02"], False),
        ("created", ["07.05.2024 14:30", "8.5.2024 9:05"], False),
        ("received", ["Mon, 9 Sep 2002 09:55:55 -0400 (EDT)", "Thursday, 3rd June 2021, 9 pm UT"], False),
        ("note", ["we met on May 5", "2 May 2024"], True),
        ("shift", ["Monday team2", "Friday team3"], True),
        ("room", ["5 - 7", "number 8"], True),
        ("empty", ["", " "], False),
        ("paid", ["a", "b"], True),
        ("id", ["a", "b c"], True),
    ],
)
def test_columns_of_ids_numbers_or_dates_are_not_fields(column, values, is_text, caplog):
    rows = [{column: value, "body": "x y", "label": label} for value, label in zip(values, "pq", strict=True)]
    assert Task.infer(rows).fields == ((column, "body") if is_text else ("body",))
    alone = [{column: value, "label": label} for value, label in zip(values, "pq", strict=True)]
    assert Task.infer(alone).fields == (column,)
    assert is_text == ("all columns are ids, numbers or dates" not in caplog.text)


@pytest.mark.parametrize(
    ("template", "title", "prompt"),
    [
        ("", "", "Body: b\nLabel, in one word:"),
        ("", "a", "Title: a\nBody: b\nLabel, in one word:"),
        ("Read:\n{title} {body}\nLabel:", "", "Read:\n b\nLabel:"),
        ("{{\n}}\n{body}\n{title} is", "", "{\n}\nb\n is"),
    ],
)
def test_lines_of_empty_fields_are_dropped_except_the_last(template, title, prompt):
    for empty in ("", None, float("nan"), pd.NA, pd.NaT, np.float32("nan")):
        rows = [{"title": title or empty, "body": "b"}, {"title": "c", "body": "d"}]
        task = Task.infer(rows, ["x", "y"], template=template)
        (example, _) = inputs.queries(task, pd.DataFrame(rows))
        assert task.render(example) == prompt


def test_labels_that_would_become_one_word_or_none_stay_as_they_are():
    assert Task.infer(["a", "b"], ["x_y", "x y"]).label_words == ("x y", "x_y")
    assert Task.infer(["a", "b"], ["_", "x_y"]).label_words == ("_", "x_y")


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (([],), {}, "X is empty"),
        (("text",), {}, "X is a single str"),
        ((np.array("text"),), {}, "X is a single ndarray"),
        ((["a", 3], ["x", "y"]), {}, "row 1: a int"),
        (([{"text": "a", "label": "x"}, {"text": "b"}],), {}, "row 1: no label column 'label', only text: name it"),
        ((["a", "b"], [0.5, 1.5]), {}, "row 0: label 0.5 is a float, not a text or a whole number"),
        (([{"n": 1, "label": "x"}],), {}, r"no column holds texts, only n \(int\), label"),
        (([{"t": b"a", "u": [], "label": "x"}],), {}, r"only t \(bytes\), u \(list\), label"),
        ((pd.DataFrame([["a", "b"]]), ["x"]), {}, "the name of column 0 is not a text; rename it"),
        ((["a", "b"], pd.Series(["x", None])), {}, "row 1: the label is missing"),
        ((["a", "b"], []), {}, "X has 2 rows, y 0 labels: each row needs one"),
        (
            (pd.DataFrame({"t": ["a", "b"], "team": ["x", "y"]}), ["x", "y"]),
            {},
            "column 'team' holds the labels: leave",
        ),
        ((["a"], ["x"]), {"empty": "none"}, "empty='none': choose from allow, skip, error"),
    ],
)
def test_rows_without_texts_or_labels_are_refused(given, options, message):
    with pytest.raises(errors.UserError, match=message):
        Task.infer(*given, **options)
