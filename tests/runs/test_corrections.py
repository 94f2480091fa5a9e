"""Files of corrected labels: suggestions after a person reviewed them, or ids with labels."""

import pytest

from knnprompt_jax import errors
from knnprompt_jax.runs import corrections
from knnprompt_jax.tasks.task import Example, Task

TASK = Task("mood", ("text",), "{text}\nMood:", ("bad", "=good", "so so"), ("bad", "good", "medium"))
ROWS = [
    Example({"text": text}, label, row)
    for row, text, label in ((0, "t0", "bad"), (2, "x", "bad"), (3, "t3", "=good"), (7, "=t7", "so so"))
]


def read(tmp_path, text, name="corrections.csv"):
    (tmp_path / name).write_text(text, encoding="utf-8")
    return corrections.read(str(tmp_path / name), "utf-8", TASK, ROWS)


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("id,label\n0,so so\n3,=good\n", {0: "so so"}),
        ("label,id\n'=good,0\n'=odd,7\n", {0: "=good", 7: "=odd"}),
        ("id,label\n0,so so\n0,so so\n2,bad\n", {0: "so so"}),
        ("id,text,label,suggested,why\n0,t0,bad,so so,near\n3,T3 ,'=good,,near\n7,'=t7,so so,so so,x\n", {0: "so so"}),
        ("id,suggested\n0, new \n3,\n", {0: "new"}),
        ("id,label\n0.0,so so\n", {0: "so so"}),
        ("id,text,label,suggested,why\n7,'=t7,bad,so so,corrected in the table\n", {}),
        ("id,text,label\n0,T0,so so\n7,'=t7,bad\n", {0: "so so", 7: "bad"}),
        ("id,text,note,label\n7,=t7,why,bad\n", {7: "bad"}),
    ],
)
def test_corrected_labels(tmp_path, text, labels):
    assert read(tmp_path, text) == (labels, frozenset())


@pytest.mark.parametrize("mark", ["x", " X", "yes", "True", "1", "1.0"])
def test_a_checked_row_keeps_its_label(tmp_path, mark):
    """A spreadsheet may leave the suggestion beside the mark."""
    text = f"id,text,label,suggested,checked\n0,t0,bad,so so,{mark}\n3,t3,'=good,,0.0\n2,x,bad,so so,no\n"
    assert read(tmp_path, text) == ({2: "so so"}, {0})
    assert read(tmp_path, f"id,label,checked\n7,bad,{mark}\n") == ({7: "bad"}, {7})


def test_ids_and_labels_may_be_numbers(tmp_path):
    assert read(tmp_path, '{"id": 3, "label": 5}\n', "c.jsonl").labels == {3: "5"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("i\u00add,label\n0,bad\n", "lacks the column 'id'; it has i.xadd, label; 'id' and 'i.xadd' differ only in"),
        ("label\nbad\n", "csv:2: lacks the column 'id'; it has label"),
        ("id,label,suggested,Checked\n0,bad,so so,x\n", "'checked'; .*; 'checked' and 'Checked' differ only in case"),
        ("id,label,Suggested\n0,bad,so so\n", "csv:2: lacks the column 'suggested'; .* differ only in case"),
        ("id,Label,suggested\n0,so so,\n", "csv:2: lacks the column 'label'; .* differ only in case"),
        ("id,Text,label\n0,t3,so so\n", "csv:2: lacks the column 'text'; .* differ only in case"),
        ("id\n3\n", "csv:2: lacks the column 'label'; it has id"),
        ("id,label\n3.5,bad\n", "csv:2: id '3.5': an integer is required"),
        ("id,label\n'-1,bad\n", 'csv:2: id "\'-1": an integer is required'),
        ('id,label\n"1,0",bad\n', "csv:2: id '1,0': an integer is required"),
        (
            "id,label\n0,bad\n5,bad\n",
            "csv:3: no train row has id 5: the row is gone, or the file belongs to other rows",
        ),
        ("id,text,label,suggested\n5,t,bad,so so\n", "csv:2: no train row has id 5"),
        ("id,label\n3,bad\n0,bad\n3,so so\n", "csv:4: id 3 has two labels in this file, 'bad' and 'so so'"),
        ("id,label\n3, \n", "csv:2: the label is empty"),
        ("id,text,label,suggested\n0,t3,bad,=good\n", "csv:2: the text is not that of row 0: the row is gone, or the"),
        ("id,text,label\n0,t0,bad\n3,x,bad\n", "csv:3: the text is not that of row 3: the row is gone, or the file"),
        ("id,label,suggested,checked\n0,bad,so so,maybe\n", "csv:2: checked 'maybe': write x if the label is right"),
        ("id,label,suggested,checked\n0,so so,bad,x\n", "csv:2: label 'so so' is not that of row 0, 'bad'"),
        ("id,label,suggested\n0,so so,=good\n", "csv:2: label 'so so' is not that of row 0, 'bad': write the"),
    ],
)
def test_mistakes_are_reported_with_their_line(tmp_path, text, message):
    with pytest.raises(errors.UserError, match=message):
        read(tmp_path, text)


def test_texts_in_the_columns_of_the_train_file(tmp_path):
    """The texts of a row are its fields or, in the column `text`, all of them; `text` may also be a column left out."""
    task = Task("mood", ("title", "body"), "{title} {body}\nMood:", ("bad", "good"), ("bad", "good"))
    rows = [
        Example({"title": "a", "body": text}, "bad", row, "", {"text": f"note {text}"}) for row, text in enumerate("bc")
    ]
    path = tmp_path / "corrections.csv"
    for header, cells in (("title,body", "a,c"), ("text", "a c"), ("text", "note c"), ("body,text", "c,a c")):
        path.write_text(f"id,{header},label\n1,{cells},good\n")
        assert corrections.read(str(path), "utf-8", task, rows).labels == {1: "good"}
        path.write_text(f"id,{header},label\n0,{cells},good\n")
        with pytest.raises(errors.UserError, match="csv:2: the text is not that of row 0: .* remove the column"):
            corrections.read(str(path), "utf-8", task, rows)


@pytest.mark.parametrize("number", ["1.5", "true", "1e20"])
def test_an_id_in_json_is_a_whole_number(tmp_path, number):
    with pytest.raises(errors.UserError, match="jsonl:1: id '.*': an integer is required"):
        read(tmp_path, f'{{"id": {number}, "label": 0}}\n', "c.jsonl")


def test_corrections_are_listed_up_to_a_number():
    lines = corrections.describe([(ROWS[1], "bad "), *[(ROWS[0], "so so")] * 22])
    assert lines[0] == "  id 2 (): 'bad' -> 'bad '" and lines[20:] == ["  and 3 more"]
