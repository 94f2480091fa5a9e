"""Rows from files: layouts, restored rows, and errors with their place."""

import hashlib
import json
import pathlib
import re

import pytest

from knnprompt_jax import errors
from knnprompt_jax.tasks import catalogue, sources
from knnprompt_jax.tasks.task import Task

TASK = Task("mood", ("sentence",), "{sentence}\nMood:", ("0", "1"), ("bad", "good"))
ROWS = [{"sentence": "dull ", "label": "0"}, {"sentence": "bright \u2028 day", "label": "1", "idx": 5}]


def write_split(folder, name, rows):
    (folder / "mood").mkdir(exist_ok=True)
    path = folder / "mood" / name
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def load(folder, split="train", **options):
    return sources.load_rows(TASK, split, data_dir=str(folder), **options)


def test_published_layout(tmp_path):
    path = write_split(tmp_path, "train.jsonl", ROWS)
    path.write_bytes(b'\xef\xbb\xbf{"sentence": "a", "label": 1}\r\n\r\n' + path.read_bytes())
    first, second, third = load(tmp_path)
    assert (first.fields, first.label, first.place) == ({"sentence": "a"}, "1", f"{path}:1")
    assert (second.fields, second.label, second.row, second.place) == ({"sentence": "dull "}, "0", 1, f"{path}:3")
    assert (third.fields, third.extra, third.row) == ({"sentence": "bright \u2028 day"}, {"idx": 5}, 2)


@pytest.mark.parametrize(
    "line, message",
    [
        ('{"label": "0"}', "lacks the field 'sentence'; it has label"),
        ('{"sentence": 3, "label": "0"}', "field 'sentence' is not a text .int."),
        ('{"sentence": " \\t", "label": "0"}', "field 'sentence' is empty"),
        ('{"sentence": "a"}', "no label column 'label', only sentence"),
        ('{"sentence": "a", "label": "2"}', "unknown label '2'; choose from 0, 1"),
        ('{"sentence": "a", "label": true}', "unknown label 'True'"),
        ('{"sentence": "a", "label": ["0"]}', "label .* is a list, not a text or a whole number"),
    ],
)
def test_bad_rows_are_refused_with_file_and_line(tmp_path, line, message):
    path = write_split(tmp_path, "train.jsonl", ROWS)
    path.write_text(path.read_text(encoding="utf-8") + line + "\n", encoding="utf-8")
    with pytest.raises(errors.UserError, match=rf"train\.jsonl:3: {message}"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data_dir": "{}"}, r"train\.jsonl: no such file; the folder holds dev\.jsonl"),
        ({"data_dir": "{}", "split": "dev"}, r"dev\.jsonl: no rows"),
        ({"data_dir": "{}/nowhere"}, "nowhere/mood: no such folder; give --data_dir=DIR .*, --hub"),
        ({}, "task 'mood': its rows are not included; give --data_dir="),
        ({"path": "{}/rows.csv"}, "cannot read the file: No such file"),
        ({"path": "{}/rows.csv", "data_dir": "{}"}, "choose one place"),
    ],
)
def test_missing_rows_list_the_files_that_exist(tmp_path, options, message):
    write_split(tmp_path, "dev.jsonl", [])
    given = {name: value.format(tmp_path) for name, value in options.items()}
    with pytest.raises(errors.UserError, match=message):
        sources.load_rows(TASK, given.pop("split", "train"), **given)


def test_the_label_column_can_have_any_name(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("team,no,sentence,label\n1,A-7,a b,x\n0,A-8,c,y\n")
    first, second = sources.load_rows(TASK, "train", path=str(path), label_column="team")
    assert (first.label, first.fields, first.extra) == ("1", {"sentence": "a b"}, {"no": "A-7", "label": "x"})
    task, _ = sources.load_table(str(path), label_column="team")
    assert task.fields == ("sentence", "label")
    assert task.template == "Sentence: {sentence}\nLabel: {label}\nTeam, in one word:"
    assert sources.load_table(str(path), ("label",), label_column="team")[0].fields == ("label",)
    with pytest.raises(errors.UserError, match="rows.csv:2: no label column 'kind', only team, .*: name it with"):
        sources.load_table(str(path), label_column="kind")
    with pytest.raises(errors.UserError, match="no label column 'Team', .* did you mean --label_column=team.$"):
        sources.load_table(str(path), label_column="Team")
    with pytest.raises(errors.UserError, match="--text_columns: 'team' is the column of the labels"):
        sources.load_table(str(path), ["sentence", "team"], label_column="team")


def test_merged_labels_of_test_rows_are_named(tmp_path, caplog):
    path = tmp_path / "rows.csv"
    path.write_text("sentence,label\na,0\nb,1.0\nc, 1\nd, 1\n")
    rows = sources.load_rows(TASK, "evaluation", path=str(path), merge_labels=True)
    assert [row.label for row in rows] == ["0", "1", "1", "1"]
    assert "rows.csv: merged labels (rows): '1.0' (1), ' 1' (2) -> '1'" in caplog.text


@pytest.mark.parametrize("names", [("0", "1"), ("0.0", "1.0")])
def test_whole_numbers_of_a_later_file_are_labels_of_the_first(tmp_path, names, caplog):
    """Pandas writes a column of integers with an empty cell as floats; a new label is named with its own file."""
    paths = [str(tmp_path / name) for name in ("first.csv", "second.csv", "third.csv")]
    lines = [f"a,{names[0]}\nb,{names[1]}", "c,1.0\nd,0.0\ne,", "f,1\ng,2\nh,01"]
    for path, rows in zip(paths, lines, strict=True):
        pathlib.Path(path).write_text(f"text,label\n{rows}\n")
    task, rows = sources.load_table(paths[0], further=paths[1:])
    assert [row.label for row in rows] == [*names, names[1], names[0], names[1], "2", "01"]
    assert {*task.labels} == {*names, "2", "01"}
    (warning,) = [line for line in caplog.messages if "new classes" in line]
    assert warning == f"{paths[2]}: labels that earlier files lack are new classes (rows): '2' (1), '01' (1)"


@pytest.mark.parametrize("row", [{"text": "c"}, {"text": "c", "label": None}, {"text": "c", "label": " "}])
def test_rows_of_a_later_file_without_a_label_are_left_out_and_counted(tmp_path, row, caplog):
    first = tmp_path / "first.csv"
    first.write_text("text,label\na,x\nb,y\n")
    later = tmp_path / "later.jsonl"
    later.write_text(f"{json.dumps(row)}\n" * 3)
    assert len(sources.load_table(str(first), further=[str(later)])[1]) == 2
    assert caplog.messages == [f"{later}: 3 of 3 rows have no label in 'label': left out"]


@pytest.mark.parametrize(
    ("name", "content", "advice"),
    [
        ("later.jsonl", '{"text": "c", "Label": "x"}\n', "did you mean --label_column=Label?"),
        ("later.csv", "text,kind\nc,x\n", "name it with --label_column="),
    ],
)
def test_a_later_file_with_another_label_column_is_refused(tmp_path, name, content, advice):
    first = tmp_path / "first.csv"
    first.write_text("text,label\na,x\nb,y\n")
    (tmp_path / name).write_text(content)
    with pytest.raises(errors.UserError, match=f"no label column 'label', only .*: {re.escape(advice)}"):
        sources.load_table(str(first), further=[str(tmp_path / name)])


MESSY = "title,body,label\n,it rains,wet\nsun,,dry\nhail,on the roof,\n , ,odd\nfog,in the bay,dry\n"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "messy.csv:4: the label is missing; --on_bad=skip leaves such rows out"),
        ({"on_bad": "skip"}, [(0, "Body: it rains\nLabel, in one word:"), (1, "Title: sun\nLabel, in one word:"), 4]),
        ({"empty": "skip"}, [4]),
        ({"empty": "error"}, "messy.csv:2: field 'title' is empty; --on_bad=skip leaves such rows out"),
        ({"empty": "error", "on_bad": "skip"}, [4]),
        ({"fields": ("body",), "on_bad": "skip"}, [0, 4]),
    ],
)
def test_empty_cells_of_a_table(tmp_path, options, expected, caplog):
    """Their lines of the prompt are left out, or the rows are, with their labels."""
    path = tmp_path / "messy.csv"
    path.write_text(MESSY)
    if isinstance(expected, str):
        with pytest.raises(errors.UserError, match=expected):
            sources.load_table(str(path), **options)
        return
    task, rows = sources.load_table(str(path), **options)
    prompts = {row.row: task.render(row) for row in rows}
    assert set(task.labels) == {row.label for row in rows}
    assert [(row, prompts[row]) if row < 2 and len(expected) == 3 else row for row in prompts] == expected
    assert f"messy.csv: {5 - len(rows)} of 5 rows are left out: {path}:" in caplog.text


@pytest.mark.parametrize("num_bad", [5, 6])
def test_the_first_bad_rows_are_named(tmp_path, num_bad, caplog):
    path = tmp_path / "messy.csv"
    path.write_text("text,label\nfine,a\n" + "bad,\n" * num_bad)
    sources.load_table(str(path), on_bad="skip")
    assert caplog.text.count("the label is missing") == 5 and ("…" in caplog.text) == (num_bad > 5)


def test_dropped_rows_are_restored_at_their_lines(tmp_path):
    rows = [{"sentence": word, "label": "0"} for word in "abcdefg"]
    kept = [row for line, row in enumerate(rows) if line not in (0, 3, 6)]
    write_split(tmp_path, "train_subset.jsonl", kept)
    write_split(tmp_path, "train_dropped.jsonl", [{"line": line} | rows[line] for line in (6, 0, 3)])
    restored = load(tmp_path, restore_dropped=True)
    assert [example.fields["sentence"] for example in restored] == list("abcdefg")
    assert [example.row for example in restored] == list(range(7)) and not restored[0].extra
    assert [example.fields["sentence"] for example in load(tmp_path)] == list("bcef")


@pytest.mark.parametrize("line", [{}, {"line": "1"}, {"line": 3}, {"line": 1.0}])
def test_dropped_rows_need_a_line_within_the_file(tmp_path, line):
    write_split(tmp_path, "train.jsonl", ROWS)
    write_split(tmp_path, "train_dropped.jsonl", [line | ROWS[0]])
    with pytest.raises(errors.UserError, match=r"train_dropped\.jsonl:1: .*line number is needed, from 0 to 2"):
        load(tmp_path, restore_dropped=True)


@pytest.mark.parametrize("name, blob", [("mpqa", "1d2e00632f96"), ("trec", "2ea0cb087b80")])
def test_restored_rows_are_the_published_file(shared, name, blob):
    """The git blob id of the restored file is the one PROVENANCE.md gives for the published one."""
    rows = sources.read_split(shared / "data" / name, "train", restore_dropped=True)
    text = "".join(json.dumps(row) + "\n" for _, row in rows).encode()
    assert hashlib.sha1(f"blob {len(text)}\0".encode() + text).hexdigest().startswith(blob)


@pytest.mark.parametrize("name", catalogue.PAPER_TASKS)
def test_every_published_evaluation_row_loads(shared, name):
    examples = sources.load_rows(catalogue.get(name), "dev_subsample", data_dir=str(shared / "data"))
    assert len(examples) == (56 if name == "cb" else 256)


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "rows.csv: no rows"), ("a|b, c\n", "rows.csv:2: 2 cells, but the header has 1")],
)
def test_a_table_without_usable_rows_says_why(tmp_path, content, message):
    (tmp_path / "rows.csv").write_text("text|label\n" + content)
    with pytest.raises(errors.UserError, match=message):
        sources.load_table(str(tmp_path / "rows.csv"))
