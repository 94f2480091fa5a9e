"""The table of task statistics: a row for each task and context."""

import dataclasses
import json
import pathlib

import pytest

from knnprompt_jax import errors
from knnprompt_jax.paper import experiments

MAX_SHOTS = experiments.get("max_shots")


@pytest.fixture
def counting(grid):
    return dataclasses.replace(grid, experiment="max_shots", contexts=(64, 128), rows=0)


def test_the_file_has_the_statistics_and_is_read_back(counting):
    text = MAX_SHOTS.count(counting)
    folder = pathlib.Path(counting.output) / "max_shots"
    rows = json.loads((folder / "max_shots.json").read_text())["rows"]
    assert [(row["task"], row["context"], row["num_classes"]) for row in rows] == [("mr", 64, 2), ("mr", 128, 2)]
    assert 1 <= rows[0]["max_shots"] < rows[1]["max_shots"]
    assert all(row["m_t"] <= row["max_shots"] and row["average_template_tokens"] > 5 for row in rows)
    assert f"{rows[1]['max_shots']} ({100 * rows[1]['truncated']:.0f} %)" in text
    assert MAX_SHOTS.read(folder) == rows
    assert len(MAX_SHOTS.section(rows, folder).tables[0].rows) == 2 + 3 * 4


def test_published_statistics_come_out(counting, shared):
    given = {"data_dir": str(shared / "data"), "tokenizer": str(shared / "tokenizers" / "gpt2"), "tasks": "trec,cb"}
    *_, trec, longer, cb = MAX_SHOTS.count(
        dataclasses.replace(counting, **given, contexts=(1024, 2048), restore_dropped=True)
    ).splitlines()[:-3]
    assert [line.split() for line in (trec, longer)] == [
        ["trec", "6", "17.6", "1024", "8", "(1", "%)", "8", "[8]"],
        ["trec", "6", "17.6", "2048", "17", "(5", "%)", "16", "[16]"],
    ]
    assert cb.split()[:4] == ["cb", "3", "90.8", "1024"] and cb.split()[-2:] == ["2", "[2]"]


@pytest.mark.parametrize(
    ("change", "message"), [({"contexts": ()}, "nothing to count"), ({"tokenizer": "nowhere"}, "nowhere")]
)
def test_mistakes_write_nothing(counting, change, message):
    with pytest.raises(errors.UserError, match=message):
        MAX_SHOTS.count(dataclasses.replace(counting, **change))
    assert not pathlib.Path(counting.output).exists()


@pytest.mark.parametrize("content", ["", "[]", '{"rows": [{"task": "mr"}]}', '{"rows": [3]}'])
def test_other_files_are_refused(content, tmp_path):
    (tmp_path / "max_shots.json").write_text(content, encoding="utf-8")
    with pytest.raises(errors.UserError, match="max_shots.json: no task statistics: rows with"):
        MAX_SHOTS.read(tmp_path)
