"""Rows from files: layouts, restored rows, and errors with their place."""

import hashlib
import json

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


@pytest.mark.parametrize(
    "file, split", [("train.jsonl", "train"), ("train_subset.jsonl", "train"), ("dev_subsample.jsonl", "dev_subsample")]
)
def test_published_layout(tmp_path, file, split):
    path = write_split(tmp_path, file, ROWS)
    first, second = load(tmp_path, split)
    assert (first.fields, first.label, first.row, first.source) == ({"sentence": "dull "}, "0", 0, f"{path}:1")
    assert (second.fields, second.other, second.row) == ({"sentence": "bright \u2028 day"}, {"idx": 5}, 1)


def test_integer_labels_blank_lines_windows_line_ends_and_a_byte_order_mark(tmp_path):
    path = write_split(tmp_path, "train.jsonl", [])
    path.write_bytes(b'\xef\xbb\xbf{"sentence": "a", "label": 1}\r\n\r\n{"sentence": "b", "label": "0"}')
    assert [(example.label, example.source) for example in load(tmp_path)] == [("1", f"{path}:1"), ("0", f"{path}:3")]


@pytest.mark.parametrize(
    "line, message",
    [
        ('{"label": "0"}', "lacks the field 'sentence'; it has label"),
        ('{"sentence": 3, "label": "0"}', "field 'sentence' is a int, not a string"),
        ('{"sentence": " \\t", "label": "0"}', "field 'sentence' is empty"),
        ('{"sentence": "a"}', "lacks the field 'label'"),
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


def test_missing_files_list_what_there_is(tmp_path):
    write_split(tmp_path, "train.jsonl", ROWS)
    with pytest.raises(errors.UserError, match=r"dev\.jsonl: no such file; the folder holds train\.jsonl"):
        load(tmp_path, "dev")
    with pytest.raises(errors.UserError, match="trec: no such folder; .* holds mood"):
        sources.load_rows(catalogue.get("trec"), "train", data_dir=str(tmp_path))
    with pytest.raises(errors.UserError, match="cannot read the file: No such file"):
        sources.load_rows(TASK, "train", path=str(tmp_path / "rows.csv"))


def test_labels_may_stand_in_another_column(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("team,sentence,label\n1,a,x\n0,b,y\n")
    rows = sources.load_rows(TASK, "train", path=str(path), label_column="team")
    assert [(row.label, row.fields, row.other) for row in rows] == [
        ("1", {"sentence": "a"}, {"label": "x"}),
        ("0", {"sentence": "b"}, {"label": "y"}),
    ]
    with pytest.raises(errors.UserError, match="no row has a 'kind', only team, sentence, label; name the column"):
        sources.load_rows(TASK, "train", path=str(path), label_column="kind")


def test_a_task_of_the_columns_of_a_file(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("no,title,body,team\nA-7,a b,c,x_y\nA-8,d,e,z\n")
    task = sources.infer(str(path), label_column="team")
    assert (task.name, task.fields, task.label_words) == ("own", ("title", "body"), ("x y", "z"))
    assert task.template == "Title: {title}\nBody: {body}\nTeam:"
    assert sources.infer(str(path), label_column="team", fields=("body",)).fields == ("body",)
    write_split(tmp_path, "dev.jsonl", [])
    with pytest.raises(errors.UserError, match=r"dev\.jsonl: no rows"):
        load(tmp_path, "dev")
    with pytest.raises(
        errors.UserError, match="rows.csv: the file is unlabelled: no row has a 'label', only no, title"
    ):
        sources.infer(str(path))


def test_rows_come_from_one_place(tmp_path):
    with pytest.raises(errors.UserError, match="choose one place"):
        load(tmp_path, path="rows.csv")
    with pytest.raises(errors.UserError, match="task 'mood': its rows are not here .*: data_dir from"):
        sources.load_rows(TASK, "train")
    for place in ({}, {"data_dir": str(tmp_path)}):
        with pytest.raises(
            errors.UserError, match=r"hub takes them from the Hugging Face Hub \(SetFit/TREC-QC\), data_"
        ):
            sources.load_rows(catalogue.get("trec"), "train", **place)


def test_the_demo_comes_with_the_package():
    task = catalogue.get("demo")
    for split in ("train", "dev_subsample"):
        examples = sources.load_rows(task, split)
        assert {example.label for example in examples} == set(task.labels)


def test_dropped_rows_go_back_to_their_lines(tmp_path):
    rows = [{"sentence": word, "label": "0"} for word in "abcdefg"]
    kept = [row for line, row in enumerate(rows) if line not in (0, 3, 6)]
    write_split(tmp_path, "train.jsonl", kept)
    write_split(tmp_path, "train_dropped.jsonl", [{"line": line} | rows[line] for line in (6, 0, 3)])
    restored = load(tmp_path, restore_dropped=True)
    assert [example.fields["sentence"] for example in restored] == list("abcdefg")
    assert [example.row for example in restored] == list(range(7))
    assert not any(example.other for example in restored)
    assert [example.fields["sentence"] for example in load(tmp_path)] == list("bcef")


@pytest.mark.parametrize(
    "line, message", [({}, "lacks 'line'"), ({"line": "1"}, "lacks 'line'"), ({"line": 9}, "outside")]
)
def test_dropped_rows_need_a_line_within_the_file(tmp_path, line, message):
    write_split(tmp_path, "train.jsonl", ROWS)
    write_split(tmp_path, "train_dropped.jsonl", [line | ROWS[0]])
    with pytest.raises(errors.UserError, match=rf"train_dropped\.jsonl:1: .*{message}"):
        load(tmp_path, restore_dropped=True)


@pytest.mark.parametrize(
    "name, blob",
    [
        ("mpqa", "1d2e00632f96"),
        ("trec", "2ea0cb087b80"),
    ],
)
def test_restored_rows_are_the_published_file(shared, name, blob):
    """The git blob id of the restored file is the one PROVENANCE.md gives for the published one."""
    rows = sources.read_split(shared / "data" / name, "train", restore_dropped=True)
    text = "".join(json.dumps(row) + "\n" for _, row in rows).encode()
    assert hashlib.sha1(f"blob {len(text)}\0".encode() + text).hexdigest().startswith(blob)


@pytest.mark.parametrize("name", catalogue.PAPER_TASKS)
def test_every_published_evaluation_row_loads(shared, name):
    examples = sources.load_rows(catalogue.get(name), "dev_subsample", data_dir=str(shared / "data"))
    assert len(examples) == (56 if name == "cb" else 256)
